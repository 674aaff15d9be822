package request

import (
	"runtime"
	"strings"
	"testing"
)

// TestMemoryOfBodies parses bodies that consist of one thing over and over. Nothing is made
// of them but names whose escapes are resolved one after the other: 20 bytes for each byte
// that become garbage at once, where all names have escapes, and none otherwise.
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
