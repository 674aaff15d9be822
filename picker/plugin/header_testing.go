package plugin

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// HeaderTesting keeps the endpoints in the header test-epp-endpoint-selection (ip:port or ip,
// comma-separated) and scores them in its order. It exists for conformance tests. Without the
// header it keeps all.
type HeaderTesting struct{}

// testPlace returns the endpoint's index in the list, or −1.
func testPlace(list string, v *cycle.View) int {
	ip, _, _ := strings.Cut(v.Address, "]:")
	ip = strings.TrimPrefix(ip, "[")
	if !strings.Contains(v.Address, "]") {
		ip, _, _ = strings.Cut(v.Address, ":")
	}
	for place := 0; list != ""; place++ {
		var item string
		item, list, _ = strings.Cut(list, ",")
		if item = strings.TrimSpace(item); item == v.Address || item == ip {
			return place
		}
	}
	return -1
}

func testHeader(c *cycle.Cycle) string {
	if c.Request.Headers == nil {
		return ""
	}
	return c.Request.Headers.Get(request.HeaderTestSelection)
}

// Filter implements cycle.Filter.
func (HeaderTesting) Filter(c *cycle.Cycle, keep []bool) {
	list := testHeader(c)
	if list == "" {
		return
	}
	for k := range keep {
		keep[k] = testPlace(list, c.At(k)) >= 0
	}
}

// Score implements cycle.Scorer.
func (HeaderTesting) Score(c *cycle.Cycle, scores []float64) {
	list := testHeader(c)
	for k := range scores {
		if place := testPlace(list, c.At(k)); place >= 0 {
			scores[k] = 1 / float64(1+place)
		}
	}
}
