package request

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestMemoryOfBodies parses bodies that repeat one construct. Parsing allocates only for names with
// escapes, which it resolves one after the other: 20 bytes of immediate garbage for each byte if
// all names have escapes, and otherwise nothing.
func TestMemoryOfBodies(t *testing.T) {
	const size = 1 << 20
	for unit, k := range map[string]int{
		`"a":0,`: 0, `"":{},`: 0, `"model":"m",`: 1, `"messages":[],`: 0, `"stream_options":{},`: 0, `"a":[[[[{}]]]],`: 0, `"a":"\u0061",`: 0,
		`"max_tokens":1e9,`: 1, `"\u0061":0,`: 20, `"kv_transfer_params":{},`: 0,
	} {
		body := []byte(`{"model":"m","messages":[],` + strings.Repeat(unit, size/len(unit)) + `"z":0}`)
		for name, parse := range map[string]func(*Request){"whole": func(r *Request) { _ = Parse(r) }, "cut": ParsePrefix} {
			r := &Request{Path: "/v1/chat/completions", Body: body}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			parse(r)
			runtime.ReadMemStats(&after)
			if n := int(after.TotalAlloc - before.TotalAlloc); n > 256<<10+k*len(body) {
				t.Errorf("%s, %s: %d bytes for a body of %d", unit, name, n, len(body))
			}
		}
	}
}

// TestWorkOfBodies: no body takes more than in proportion to its length.
func TestWorkOfBodies(t *testing.T) {
	for name, body := range testkit.HardJSON {
		testkit.Linear(t, name, func(n int) func() {
			b := body(n)
			return func() {
				_ = Parse(&Request{Path: "/v1/chat/completions", Body: b}) // read or refused
				ParsePrefix(&Request{Path: "/v1/chat/completions", Body: b})
			}
		})
	}
}

// TestOthersRun: small requests do not wait until a large body is read.
func TestOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	body := testkit.HardJSON["empty objects"](8 << 20)
	var turns, stop atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for stop.Load() == 0 {
			turns.Add(1)
			runtime.Gosched()
		}
	}()
	before := turns.Load()
	_ = Parse(&Request{Path: "/v1/chat/completions", Body: body})
	n := turns.Load() - before
	stop.Store(1)
	<-done
	if n < 100 {
		t.Errorf("others ran %d times while 8 MB were read", n)
	}
}
