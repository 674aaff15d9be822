package events

import (
	"runtime"
	"strings"
	"testing"
)

// TestMemoryOfSources reads answers that would become many times their size: memory stays
// below 2 MiB and 12 bytes for each byte.
func TestMemoryOfSources(t *testing.T) {
	for _, unit := range []string{`1,`, `{},`, `[],`, `{"endpoint":"tcp://h:5557"},`, `{"data_parallel_rank":1},`} {
		for _, form := range []string{"[", `{"sources":[`} {
			end := "{}]" + strings.Repeat("}", strings.Count(form, "{"))
			body := []byte(form + strings.Repeat(unit, (maxDiscovery-len(form)-len(end))/len(unit)) + end)
			for name, parse := range map[string]func([]byte, string) ([]Stream, error){"sources": ParseSources, "server info": ParseServerInfo} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := parse(body, "h")
				runtime.ReadMemStats(&after)
				if n := int(after.TotalAlloc - before.TotalAlloc); n > 2<<20+12*len(body) || err == nil {
					t.Errorf("%s of %s%s: %d bytes for an answer of %d, %v", name, form, unit, n, len(body), err)
				}
			}
		}
	}
}
