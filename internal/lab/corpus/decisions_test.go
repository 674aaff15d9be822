package corpus

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/grapevine-epp/grapevine/internal/explain"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// minShapes is the least number of configuration shapes in the corpus.
const minShapes = 100

// corpusAsks are the requests that each configuration places: one that is not cached anywhere, one
// mostly cached at an idle endpoint, and one cached completely at the busiest endpoint.
var corpusAsks = []struct {
	name string
	held map[string]int
}{
	{"cold", nil},
	{"held by 2", map[string]int{"10.0.0.2:8000": 5120}},
	{"held by 4", map[string]int{"10.0.0.4:8000": 6400}},
}

// TestCorpus loads configuration shapes that are published for other pickers. They choose by the
// rules of those pickers, or are refused with a hint at the replacement. Run with -rewrite to
// update the answers.
func TestCorpus(t *testing.T) {
	n := 0
	datadriven.Walk(t, "shapes", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			n++
			fleet := "shapes/fleet.json"
			for _, a := range d.CmdArgs { // a fleet whose endpoints have roles, learned speeds, labels or custom gauges
				if a.Key == "roles" || a.Key == "learned" || a.Key == "labelled" || a.Key == "custom" || a.Key == "clusters" || a.Key == "revisions" {
					fleet = "shapes/" + a.Key + ".json"
				}
			}
			return shapeOutcome(t, d.Input, fleet)
		})
	})
	if n < minShapes && flag.Lookup("test.run").Value.String() == "" {
		t.Errorf("%d shapes, want %d", n, minShapes)
	}
}

func shapeOutcome(t *testing.T, text, fleet string) string {
	t.Helper()
	var out strings.Builder
	c, problems := config.Parse("f", []byte(text), config.Options{Table: pd.Table()})
	for _, p := range problems {
		fmt.Fprintln(&out, "error", p)
	}
	if c == nil {
		return out.String()
	}
	for _, n := range c.Notes {
		fmt.Fprintln(&out, "note", n)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ask := range corpusAsks {
		o := explain.Offline{Config: file, Fleet: fleet, Tokens: 6400, Held: ask.held, Seed: 1, Now: time.Unix(1_800_000_000, 0)}
		d, err := o.Decide(&request.Request{ID: "corpus", Path: "/v1/completions", Headers: corpusHeaders{"x-session-id": "s", "x-team": "blue"}})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		fmt.Fprintf(&out, "%s:", ask.name)
		if d.Refused != "" {
			fmt.Fprintln(&out, " refused,", d.Refused)
			continue
		}
		for _, p := range d.Profiles {
			fmt.Fprintf(&out, " %s[", p.Profile)
			for i, r := range p.Rows {
				if i > 0 {
					out.WriteByte(' ')
				}
				number := strings.TrimSuffix(strings.TrimPrefix(r.Endpoint, "10.0.0."), ":8000")
				if r.Dropped != "" {
					fmt.Fprintf(&out, "%s=%s", number, r.Dropped)
				} else {
					fmt.Fprintf(&out, "%s=%.4g", number, r.Total)
				}
			}
			out.WriteByte(']')
		}
		fmt.Fprintln(&out, " →", d.Choice)
	}
	return out.String()
}

// corpusHeaders are the headers of the requests.
type corpusHeaders map[string]string

// Get implements request.Headers.
func (h corpusHeaders) Get(name string) string { return h[name] }
