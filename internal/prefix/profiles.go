package prefix

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Profiles are the profiles of the pool's engines. Readers take no lock.
type Profiles struct {
	mu    sync.Mutex
	set   map[block.EndpointID]prompt.Profile
	count map[prompt.Profile]int          // endpoints by profile
	mixed map[block.EndpointID]bool       // received salted prompts whose blocks its events do not distinguish
	byID  atomic.Pointer[[]atomic.Uint32] // profiles by id; a longer list replaces it
	salts atomic.Pointer[[]bool]          // mixed, by id
	kinds atomic.Pointer[[]prompt.Profile]
}

// Set sets the profile of an endpoint's engine.
func (p *Profiles) Set(id block.EndpointID, as prompt.Profile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.set[id]
	if known && was == as {
		return
	}
	if p.set == nil {
		p.set, p.count = map[block.EndpointID]prompt.Profile{}, map[prompt.Profile]int{}
	}
	if p.set[id] = as; known {
		p.uncount(was)
	}
	p.count[as]++
	p.publish(id, as)
}

// uncount removes an endpoint from the count of its former profile.
func (p *Profiles) uncount(was prompt.Profile) {
	if p.count[was]--; p.count[was] == 0 {
		delete(p.count, was)
	}
}

// Forget removes an endpoint.
func (p *Profiles) Forget(id block.EndpointID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mixed[id] {
		delete(p.mixed, id)
		p.publishSalts()
	}
	if was, ok := p.set[id]; ok {
		delete(p.set, id)
		p.uncount(was)
		p.publish(id, 0)
	}
}

// salt records that a salted prompt was sent to an endpoint. If its engine's events contain no
// salts, they no longer show which blocks a prompt can use.
func (p *Profiles) salt(id block.EndpointID) {
	if p == nil || !p.Of(id).Unknown(prompt.FactSalts) || p.salted(id) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mixed == nil {
		p.mixed = map[block.EndpointID]bool{}
	}
	p.mixed[id] = true
	p.publishSalts()
}

// salted reports whether an endpoint holds blocks of salted prompts that its events do not
// distinguish.
func (p *Profiles) salted(id block.EndpointID) bool {
	if p == nil {
		return false
	}
	l := p.salts.Load()
	return l != nil && int(id) < len(*l) && (*l)[id]
}

func (p *Profiles) publishSalts() {
	var l []bool
	for id := range p.mixed {
		for int(id) >= len(l) {
			l = append(l, false)
		}
		l[id] = true
	}
	p.salts.Store(&l)
}

// publish makes the profile of an endpoint visible to readers. The caller holds p.mu. Its cost does not
// grow with the pool, since all endpoints of a starting replica change their profile.
func (p *Profiles) publish(id block.EndpointID, as prompt.Profile) {
	list := p.byID.Load()
	if list == nil || int(id) >= len(*list) {
		longer := make([]atomic.Uint32, max(2*int(id), 16))
		if list != nil {
			for i := range *list {
				longer[i].Store((*list)[i].Load())
			}
		}
		list = &longer
	}
	(*list)[id].Store(uint32(as))
	p.byID.Store(list)
	kinds := slices.SortedFunc(maps.Keys(p.count), func(a, b prompt.Profile) int {
		if n := p.count[b] - p.count[a]; n != 0 {
			return n
		}
		return int(a) - int(b)
	})
	p.kinds.Store(&kinds)
}

// Of returns the profile of an endpoint's engine.
func (p *Profiles) Of(id block.EndpointID) prompt.Profile {
	if p == nil {
		return 0
	}
	if l := p.byID.Load(); l != nil && int(id) < len(*l) {
		return prompt.Profile((*l)[id].Load())
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

// variantOf returns the index of the variant of r for an endpoint, -1 for r.Exact.
func (m *Matcher) variantOf(r *request.Request, id block.EndpointID) int {
	if len(r.Variants) == 0 {
		return -1
	}
	as := uint32(m.o.Profiles.Of(id))
	for i := range r.Variants {
		if r.Variants[i].Profile == as {
			return i
		}
	}
	return -1
}

// exactOf returns the prompts of r as rendered by an endpoint's engine.
func (m *Matcher) exactOf(r *request.Request, id block.EndpointID) []block.Query {
	if i := m.variantOf(r, id); i >= 0 {
		return r.Variants[i].Exact
	}
	return r.Exact
}

// ungrouped reports whether an endpoint serves a model with several cache groups on an engine whose
// events do not contain groups.
func (m *Matcher) ungrouped(ep *endpoint.Endpoint) bool {
	if m.o.Models == nil || !m.o.Profiles.Of(ep.ID).Unknown(prompt.FactGroups) {
		return false
	}
	for _, name := range ep.Models {
		if p := m.o.Models.Model(name); p != nil && p.Hybrid() {
			return true
		}
	}
	if len(ep.Models) > 0 {
		return false
	}
	list := m.o.Models.Registry().Status()
	if len(list) != 1 {
		return false
	}
	p := m.o.Models.Model(list[0].Name)
	return p != nil && p.Hybrid()
}
