package facts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// TestWorkOfFacts: the work for a member's value is proportional to its length, for long lists and
// malformed values alike.
func TestWorkOfFacts(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var p health.Prompts
	blame := blameSink{&Hints{o: HintOptions{Pool: endpoint.NewPool(endpoint.PoolOptions{}), Blame: &p, Now: func() time.Time { return now }}}}
	read := func(b []byte) { // accepted or rejected
		_, _, _ = readLoad(b, now)
		_, _ = readCost(b)
		_, _ = readSetup(b)
		_, _ = readGauges(b)
		_, _ = readSeed(b)
		_ = blame.Deliver("r", 1, b)
		_, _ = claims.Read(b)
		_, _ = readFilePage(b)
	}
	for name, of := range map[string]func(n int) []byte{
		"models": func(n int) []byte {
			models := map[string]uint64{}
			for i := range n / 16 {
				models[fmt.Sprintf("%08d", i)] = uint64(i)
			}
			return (&setup{secret: 7, models: models}).append(nil)
		},
		"queues": func(n int) []byte {
			list := make([]rules.Gauge, n/16)
			for i := range list {
				list[i] = rules.Gauge{Flow: fmt.Sprintf("%08d", i), Requests: 1}
			}
			return appendGauges(nil, list)
		},
		"files": func(n int) []byte {
			c := claims.Claim{Stage: claims.Ready, Commit: "c"}
			for range n / 64 {
				c.Files = append(c.Files, claims.File{Name: "tokenizer.json", SHA256: strings.Repeat("ab", 32)})
			}
			return c.Append(nil)
		},
		"zeros": func(n int) []byte { return testkit.Repeated(n, "", "\x00", "") },
		"ones":  func(n int) []byte { return testkit.Repeated(n, "", "\x01", "") },
		"ends":  func(n int) []byte { return testkit.Repeated(n, "", "\xff", "") },
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := of(n)
			return func() { read(b) }
		})
	}
}
