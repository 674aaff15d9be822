//go:build hostile

package hostile

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const (
	churnRounds = 40
	churnEach   = 500 // addresses of one round, all of them new
	churnLeft   = 8 << 20
)

// TestChurn lets 20,000 addresses come and go: when they have been forgotten, the
// program holds what it held before.
func TestChurn(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	program := filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	round := func(n int) (list []string) {
		for i := range churnEach {
			k := n*churnEach + i
			list = append(list, fmt.Sprintf("127.%d.%d.%d:9", 1+k>>16, k>>8&255, k&255))
		}
		return list
	}
	c := lockUp(t, program, "--endpoints", r.writeEndpoints(round(0)...))
	live := func() float64 {
		if c.get("/debug/pprof/heap?gc=1") == 0 {
			t.Fatal("no answer")
		}
		return c.counters()["go_gc_heap_live_bytes"]
	}
	before, files := live(), c.files()
	for n := 1; n <= churnRounds; n++ {
		r.writeEndpoints(round(n)...)
		time.Sleep(1500 * time.Millisecond)
		if !c.alive() {
			t.Fatalf("the program is dead after %d addresses; its log ends with\n%s", n*churnEach, tail(c.log.String()))
		}
	}
	top := c.peak.Load()
	r.writeEndpoints(round(0)...)
	after := 0.0
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Second) {
		if after = live(); after < before+churnLeft && c.files() < files+50 {
			break
		}
	}
	t.Logf("512 MiB, held by: %s; %d addresses: live heap %.1f MiB before and %.1f after, peak of the process %d MiB, files %d and %d",
		c.kind, churnRounds*churnEach, before/(1<<20), after/(1<<20), top>>20, files, c.files())
	if after >= before+churnLeft {
		t.Errorf("%.1f MiB are held for addresses that are gone", (after-before)/(1<<20))
	}
}
