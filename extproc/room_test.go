package extproc

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestMutationStaysWithinTheProxysLimits: the picker's headers never bring a request beyond 100
// headers or 60 KiB, the limits of Envoy. The destination is included if it fits.
func TestMutationStaysWithinTheProxysLimits(t *testing.T) {
	d := &request.Decision{
		Endpoints: []string{"10.0.0.1:8000"}, Tries: request.TriesOnce,
		SetHeaders: []request.HeaderSet{{Name: "x-prefiller-host-port", Value: "10.0.0.2:8000"}, {Name: "x-signature", Value: "s"}},
	}
	for _, c := range []struct {
		name          string
		headers, size int // of the request, in all
		all           bool
		set           int // headers of the mutation
	}{
		{"few headers", 20, 1000, true, 5},
		{"room for all", 95, 1000, true, 5},
		{"no room for retries", 97, 1000, true, 3},
		{"no room for the decision's headers", 98, 1000, false, 1},
		{"room for the destination", 99, 1000, false, 1},
		{"no room", 100, 1000, false, 0},
		{"more than the client may send", 104, 1000, false, 0},
		{"a proxy with a higher limit", 150, 1000, true, 5},
		{"no bytes left", 20, bytesLimit, false, 0},
		{"some bytes left", 20, bytesLimit - 60, false, 1},
	} {
		view := headerView{}
		for range c.headers {
			view.list = append(view.list, wire.Header{Name: "n"})
		}
		view.list[0].Value = strings.Repeat("v", c.size-c.headers)
		room := view.room(0)
		limit := room
		var w wire.RouteWriter
		all := w.Begin(d, d.Endpoints[0], &room)
		w.Tries(d.Tries, &room)
		if set := limit.Headers - room.Headers; all != c.all || set != c.set {
			t.Errorf("%s: Begin() = %v with %d headers, want %v with %d", c.name, all, set, c.all, c.set)
		}
		if room.Headers < min(limit.Headers, 0) || room.Bytes < 0 {
			t.Errorf("%s: the mutation passes the limit: %+v left", c.name, room)
		}
		if c.set == 0 && len(w.Mutation) > 0 {
			t.Errorf("%s: there is a mutation, which the proxy would refuse", c.name)
		}
	}
}
