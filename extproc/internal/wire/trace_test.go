package wire

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestTraceRoom checks that the headers of a trace are set together where the proxy's limits leave
// room for all of them, and not at all otherwise. The destination takes its room first.
func TestTraceRoom(t *testing.T) {
	headers := []tracing.Header{{Name: "traceparent", Value: "a"}, {Name: "tracestate", Value: "b"}}
	size := len("traceparenta") + len("tracestateb")
	d := &request.Decision{Endpoints: []string{"10.0.0.1:80"}}
	taken := len(HeaderDestination) + len(d.Endpoints[0])
	for name, c := range map[string]struct {
		room Room
		set  bool
	}{
		"room for all":      {Room{3, taken + size}, true},
		"one header short":  {Room{2, taken + size}, false},
		"one byte short":    {Room{3, taken + size - 1}, false},
		"no room left over": {Room{1, taken}, false},
	} {
		var w RouteWriter
		if !w.Begin(d, d.Endpoints[0], &c.room) {
			t.Errorf("%s: the destination is not set", name)
		}
		w.Trace(headers, &c.room)
		for _, h := range headers {
			if got := strings.Contains(string(w.Mutation), h.Name); got != c.set {
				t.Errorf("%s: %s is set: %v, want %v", name, h.Name, got, c.set)
			}
		}
	}
}
