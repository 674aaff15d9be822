package cycle

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// need describes a resource that engines load for requests.
type need struct {
	// applies reports whether the request may need the resource at any candidate.
	applies func(c *Cycle) bool
	// key identifies the resource that the request needs at v, 0 for none.
	key func(c *Cycle, v *View) uint64
	// held reports whether the engine has it.
	held func(v *View, key uint64) bool
	// wait returns the seconds until the engine can begin to load it.
	wait func(c *Cycle, v *View, answer float64) float64
	// use records that a request that needs it is sent to the engine.
	use func(c *Cycle, v *View, key uint64)
}

// needs is the table of resources. The scorer, the records and the learned times use every entry.
var needs = [endpoint.NumNeeds]need{
	endpoint.NeedAdapter: {applies: mayNeedAdapter, key: (*Cycle).adapterKey, held: holdsAdapter, wait: (*Cycle).waitOfAdapter, use: useAdapter},
}

// Readiness is the state of the resources that a request needs at one candidate.
type Readiness struct {
	Used, Missing endpoint.Needs
	Wait          float64 // seconds until the loads can begin
	Load          float64 // seconds of the loads
}

// Ready returns the readiness of candidate v for the request, whose answer is expected to have that
// many tokens.
func (c *Cycle) Ready(v *View, answer float64) Readiness {
	if c.needs == 0 {
		return Readiness{}
	}
	return c.ready(v, answer)
}

// NeedsAny reports whether the request may need any resource.
func (c *Cycle) NeedsAny() bool { return c.needs != 0 }

// findNeeds determines once which resources the request may need.
func (c *Cycle) findNeeds() {
	c.needs = 0
	for n := range needs {
		if needs[n].applies(c) {
			c.needs = c.needs.With(endpoint.Need(n))
		}
	}
}

func (c *Cycle) ready(v *View, answer float64) Readiness {
	var r Readiness
	for n := range needs {
		if !c.needs.Has(endpoint.Need(n)) {
			continue
		}
		key := needs[n].key(c, v)
		if key == 0 {
			continue
		}
		if r.Used = r.Used.With(endpoint.Need(n)); needs[n].held(v, key) {
			continue
		}
		r.Missing = r.Missing.With(endpoint.Need(n))
		r.Wait = max(r.Wait, needs[n].wait(c, v, answer))
		r.Load += c.needTimes.Seconds(endpoint.Need(n))
	}
	return r
}

// UseNeeds records that the request is sent to candidate v.
func (c *Cycle) UseNeeds(v *View) {
	for n := range needs {
		if key := needs[n].key(c, v); c.needs.Has(endpoint.Need(n)) && key != 0 {
			needs[n].use(c, v, key)
		}
	}
}

// mayNeedAdapter reports whether the request names an adapter, or an engine reports adapters.
func mayNeedAdapter(c *Cycle) bool { return c.Request.Adapter != "" || c.seen&flagAdapters != 0 }

// adapterKey returns the key of the request's adapter at v. A model other than the base model is an
// adapter at engines that report adapters.
func (c *Cycle) adapterKey(v *View) uint64 {
	name := c.Request.Adapter
	if name == "" {
		if v.LoRA() == nil || c.Request.Target == v.Base() {
			return 0
		}
		name = c.Request.Target
	}
	return endpoint.ModelKey(name)
}

func holdsAdapter(v *View, key uint64) bool {
	slots := 0
	if l := v.LoRA(); l != nil {
		slots = l.Max
	}
	return v.HoldsAdapter(key, slots)
}

// waitOfAdapter returns the wait for a slot: if running requests use every slot, one of these
// becomes free each answer/slots steps.
func (c *Cycle) waitOfAdapter(v *View, answer float64) float64 {
	l := v.LoRA()
	if l == nil || !v.Fresh() || l.Max <= 0 || len(l.Running) < l.Max || slices.Contains(l.Running, cmp.Or(c.Request.Adapter, c.Request.Target)) {
		return 0
	}
	return answer * v.step() / float64(l.Max)
}

func useAdapter(c *Cycle, v *View, key uint64) { v.UseAdapter(key, c.Now) }
