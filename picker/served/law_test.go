package served

import (
	"runtime"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestMemoryOfLists decodes lists that would expand to many times their size. Memory stays below 4
// MiB for 8,192 models, plus 12 bytes per byte.
func TestMemoryOfLists(t *testing.T) {
	const size = maxPage / 2
	for _, unit := range []string{`1,`, `{},`, `[],`, `{"id":"m"},`, `{"id":"m","parent":"p"},`, `{"":0},`} {
		for _, form := range []string{`{"object":"list","data":[`, `{"data":[{"id":"a"}],"data":[`} {
			page := []byte(form + strings.Repeat(unit, size/len(unit)) + `{"id":"z"}]}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			list, err := Decode(page, endpoint.EngineUnknown)
			runtime.ReadMemStats(&after)
			if n := int(after.TotalAlloc - before.TotalAlloc); n > 4<<20+12*len(page) {
				t.Errorf("%s: %d bytes for a page of %d, %v", unit, n, len(page), err)
			}
			if len(list.Models) > maxModels || list.Rejects {
				t.Errorf("%s: %d models, rejects %v", unit, len(list.Models), list.Rejects)
			}
		}
	}
}

// TestWorkOfLists: the work for a list is proportional to its length.
func TestWorkOfLists(t *testing.T) {
	for name, page := range map[string]func(n int) []byte{
		"equal models": func(n int) []byte { return testkit.Repeated(n, `{"object":"list","data":[`, `{"id":"m"},`, `{}]}`) },
		"parents": func(n int) []byte {
			return testkit.Repeated(n, `{"object":"list","data":[`, `{"id":"m","parent":"p","root":"r"},`, `{}]}`)
		},
		"a name":           func(n int) []byte { return testkit.Repeated(n, `{"object":"list","data":[{"id":"`, `\n`, `"}]}`) },
		"lists after that": func(n int) []byte { return testkit.Repeated(n, `{"data":[],`, `"data":[{"id":"a"}],`, `"data":[]}`) },
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := page(n)
			return func() { _, _ = Decode(b, endpoint.EngineUnknown) } // accepted or rejected
		})
	}
}
