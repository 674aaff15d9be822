package kvtransfer

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestMemoryOfBodies parses bodies that would expand to many times their size, and removes proxy
// fields. Memory stays below 256 KiB plus 12 bytes per byte.
func TestMemoryOfBodies(t *testing.T) {
	const size = 2 << 20
	for _, unit := range []string{`"":0,`, `"a":0,`, `"\u0061":0,`, `"kv_transfer_params":{},`, `"a":{"b":[[],{}]},`} {
		body := []byte("{" + strings.Repeat(unit, size/len(unit)) + `"z":0}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o, err := Parse(body)
		if err == nil {
			_, _, _ = Policy{Action: Strip}.Apply(&o)
		}
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrMany) {
			t.Errorf("%s: %v", unit, err)
		}
		if n := int(after.TotalAlloc - before.TotalAlloc); n > 256<<10+12*len(body) {
			t.Errorf("%s: %d bytes for a body of %d", unit, n, len(body))
		}
	}
	most := []byte("{" + strings.Repeat(`"":0,`, MaxMembers-1) + `"":0}`)
	if o, err := Parse(most); err != nil || len(o.Keys()) != MaxMembers {
		t.Errorf("%d members, %v", len(o.Keys()), err)
	}
}

// TestWorkOfBodies: the work for a body is proportional to its length.
func TestWorkOfBodies(t *testing.T) {
	for name, body := range testkit.HardJSON {
		testkit.Linear(t, name, func(n int) func() {
			b := body(n)
			return func() {
				if o, err := Parse(b); err == nil { // accepted or rejected
					_, _, _ = Policy{Action: Strip}.Apply(&o)
				}
			}
		})
	}
}
