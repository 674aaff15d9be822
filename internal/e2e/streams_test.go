package e2e

import (
	"io"
	"net/http"
	"regexp"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// metric returns the value of a replica's metric without labels.
func (r *rig) metric(replica int, name string) float64 {
	r.t.Helper()
	resp, err := http.Get("http://" + r.servers[replica].AdminAddr().String() + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(page)
	if m == nil {
		r.t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// streams asserts that no ext_proc stream is open.
func streams(r *rig) {
	r.t.Helper()
	for i := range r.servers {
		testkit.Await(r.t, "no open stream", func() bool { return r.metric(i, "grapevine_extproc_streams") == 0 })
	}
}
