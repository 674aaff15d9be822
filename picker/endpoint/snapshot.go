package endpoint

import (
	"net/netip"
)

// Snapshot is the pool at one moment. It is immutable. Endpoints are sorted by address, so all
// replicas with the same pool use the same order.
type Snapshot struct {
	Endpoints []*Endpoint
	Absent    []*Endpoint // left the list but may be reinstated; not candidates
	Version   uint64      // increases with every change

	byAddr map[netip.AddrPort]int32
	byID   []int32 // index in Endpoints + 1, by dense id
	models *modelIndex
	marks  []*Mark // by index in Endpoints
}

// Mark returns the mark of the endpoint at an index in Endpoints.
func (s *Snapshot) Mark(i int32) *Mark { return s.marks[i] }

// Lookup returns the endpoint at an ip:port, or nil. It accepts any spelling of an IPv6 address.
func (s *Snapshot) Lookup(address string) *Endpoint {
	if i := s.Index(address); i >= 0 {
		return s.Endpoints[i]
	}
	return nil
}

// ByID returns the endpoint with an id, or nil if it is not in this snapshot.
func (s *Snapshot) ByID(id int) *Endpoint {
	if id < 0 || id >= len(s.byID) || s.byID[id] == 0 {
		return nil
	}
	return s.Endpoints[s.byID[id]-1]
}

// IDs returns the largest dense id in use plus one.
func (s *Snapshot) IDs() int { return len(s.byID) }

// Index returns the position in Endpoints of an ip:port, or -1.
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

// canonical normalizes an address: IPv4-mapped IPv6 becomes IPv4.
func canonical(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func newSnapshot(endpoints []*Endpoint, version uint64) *Snapshot {
	s := &Snapshot{Endpoints: endpoints, Version: version, byAddr: make(map[netip.AddrPort]int32, len(endpoints))}
	s.marks = make([]*Mark, len(endpoints))
	for i, ep := range endpoints {
		s.marks[i] = ep.mark
		s.byAddr[canonical(ep.Addr)] = int32(i)
		for int(ep.ID) >= len(s.byID) {
			s.byID = append(s.byID, 0)
		}
		s.byID[ep.ID] = int32(i) + 1
	}
	s.models = newModelIndex(endpoints)
	return s
}
