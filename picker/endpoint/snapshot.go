package endpoint

import (
	"net/netip"
)

// Snapshot is the pool at one moment, immutable. Endpoints are sorted by
// address, so that every replica with the same pool has the same order.
type Snapshot struct {
	Endpoints []*Endpoint
	Absent    []*Endpoint // left the list and may come back: no candidates
	Version   uint64      // grows with every change

	byAddr map[netip.AddrPort]int32
	byID   []int32 // index in Endpoints + 1, by dense id
	models *modelIndex
}

// Lookup returns the endpoint at an ip:port, nil when there is none. Any
// spelling of an IPv6 address is understood.
func (s *Snapshot) Lookup(address string) *Endpoint {
	if i := s.Index(address); i >= 0 {
		return s.Endpoints[i]
	}
	return nil
}

// ByID returns the endpoint with the id, nil when it is not in this snapshot.
func (s *Snapshot) ByID(id int) *Endpoint {
	if id < 0 || id >= len(s.byID) || s.byID[id] == 0 {
		return nil
	}
	return s.Endpoints[s.byID[id]-1]
}

// IDs returns one more than the largest dense id in use.
func (s *Snapshot) IDs() int { return len(s.byID) }

// Index returns where in Endpoints the one at an ip:port stands, -1 when there
// is none.
func (s *Snapshot) Index(address string) int {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return -1
	}
	i, ok := s.byAddr[canonical(addr)]
	if !ok {
		return -1
	}
	return int(i)
}

// canonical makes spellings of one address equal: IPv4 in IPv6 becomes IPv4.
func canonical(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func newSnapshot(endpoints []*Endpoint, version uint64) *Snapshot {
	s := &Snapshot{Endpoints: endpoints, Version: version, byAddr: make(map[netip.AddrPort]int32, len(endpoints))}
	for i, ep := range endpoints {
		s.byAddr[canonical(ep.Addr)] = int32(i)
		for int(ep.ID) >= len(s.byID) {
			s.byID = append(s.byID, 0)
		}
		s.byID[ep.ID] = int32(i) + 1
	}
	s.models = newModelIndex(endpoints)
	return s
}
