package prefix

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Profiles are the profiles of the pool's engines. Readers take no lock.
type Profiles struct {
	mu    sync.Mutex
	set   map[block.EndpointID]prompt.Profile
	byID  atomic.Pointer[[]prompt.Profile]
	kinds atomic.Pointer[[]prompt.Profile]
}

// Set notes the profile of an endpoint's engine.
func (p *Profiles) Set(id block.EndpointID, as prompt.Profile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.set[id]; ok && was == as {
		return
	}
	if p.set == nil {
		p.set = map[block.EndpointID]prompt.Profile{}
	}
	p.set[id] = as
	p.publish()
}

// Forget forgets an endpoint.
func (p *Profiles) Forget(id block.EndpointID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.set[id]; ok {
		delete(p.set, id)
		p.publish()
	}
}

// publish makes changes visible; p.mu is held.
func (p *Profiles) publish() {
	var byID, kinds []prompt.Profile
	count := map[prompt.Profile]int{}
	for id, as := range p.set {
		for int(id) >= len(byID) {
			byID = append(byID, 0)
		}
		byID[id] = as
		if count[as]++; count[as] == 1 {
			kinds = append(kinds, as)
		}
	}
	slices.SortFunc(kinds, func(a, b prompt.Profile) int {
		if n := count[b] - count[a]; n != 0 {
			return n
		}
		return int(a) - int(b)
	})
	p.byID.Store(&byID)
	p.kinds.Store(&kinds)
}

// of returns the profile of an endpoint's engine.
func (p *Profiles) of(id block.EndpointID) prompt.Profile {
	if p == nil {
		return 0
	}
	if l := p.byID.Load(); l != nil && int(id) < len(*l) {
		return (*l)[id]
	}
	return 0
}

// all returns the profiles of the pool, the most frequent first.
func (p *Profiles) all() []prompt.Profile {
	if p != nil {
		if l := p.kinds.Load(); l != nil && len(*l) > 0 {
			return *l
		}
	}
	return anyProfile[:]
}

var anyProfile [1]prompt.Profile

// variantOf returns the place of the variant of r that is for an endpoint, -1 for r.Exact.
func (m *Matcher) variantOf(r *request.Request, id block.EndpointID) int {
	if len(r.Variants) == 0 {
		return -1
	}
	as := uint32(m.o.Profiles.of(id))
	for i := range r.Variants {
		if r.Variants[i].Profile == as {
			return i
		}
	}
	return -1
}

// exactOf returns the prompts of r as an endpoint's engine renders them.
func (m *Matcher) exactOf(r *request.Request, id block.EndpointID) []block.Query {
	if i := m.variantOf(r, id); i >= 0 {
		return r.Variants[i].Exact
	}
	return r.Exact
}
