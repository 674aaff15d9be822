package sidecar

import (
	"net/http"
	"net/netip"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// headerRank selects a rank of an engine with several ranks behind one port.
const headerRank = "X-Data-Parallel-Rank"

// Ranks are the proxies of an engine's data-parallel ranks, each on its own port, starting at Port.
type Ranks struct {
	Port    int
	Servers []*Server
}

// At returns the handler of a rank's port. A request whose header names another rank's port is
// passed to that rank, as pickers do if all requests enter at one port. An unknown port is answered
// with 400.
func (k *Ranks) At(rank int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := k.Servers[rank]
		if named := r.Header.Get(request.HeaderDataParallel); named != "" {
			a, err := netip.ParseAddrPort(named)
			n := int(a.Port()) - k.Port
			if err != nil || n < 0 || n >= len(k.Servers) {
				writeError(w, http.StatusBadRequest, "this sidecar does not serve the data-parallel rank chosen by the picker")
				return
			}
			s = k.Servers[n]
		}
		s.ServeHTTP(w, r)
	})
}
