package prefix

import (
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
	mixed map[block.EndpointID]bool // received salted prompts whose blocks its events do not distinguish
	byID  atomic.Pointer[[]prompt.Profile]
	salts atomic.Pointer[[]bool] // mixed, by id
	kinds atomic.Pointer[[]prompt.Profile]
}

// Set sets the profile of an endpoint's engine.
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

// Forget removes an endpoint.
func (p *Profiles) Forget(id block.EndpointID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mixed[id] {
		delete(p.mixed, id)
		p.publishSalts()
	}
	if _, ok := p.set[id]; ok {
		delete(p.set, id)
		p.publish()
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

// publish makes changes visible to readers. The caller holds p.mu.
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

// Of returns the profile of an endpoint's engine.
func (p *Profiles) Of(id block.EndpointID) prompt.Profile {
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
