package cycle

import (
	"cmp"
	"math/bits"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// withhold excludes candidates that are unhealthy, have a full queue, or fail the request's model, client or
// kind.
// Candidates with a partial share are excluded at random.
func (c *Cycle) withhold() {
	now := c.Now.UnixNano()
	if !c.restricted(now) {
		return
	}
	c.keep = resize(c.keep, len(c.endpoints))
	for i, ep := range c.endpoints {
		share := ep.Share()
		c.keep[i] = share == health.Full || share > 0 && uint32(c.IntN(health.Full)) < share
		if share > 0 && ep.Role&endpoint.RoleDecode != 0 && (!c.keep[i] || ep.Tracker().FullAt(now)) {
			c.reserve = append(c.reserve, ep)
		}
	}
	if !c.serves() { // random exclusion left none: use every endpoint that is not out
		for i, ep := range c.endpoints {
			c.keep[i] = !ep.Down()
		}
		if !c.serves() {
			return
		}
	}
	c.leave(explanation.AvoidedHealth)
	c.spare(explanation.AvoidedFull, func(ep *endpoint.Endpoint) bool { return ep.Tracker().FullAt(now) })
	for trait, key := range TraitsOf(c.Request) {
		c.excludeFailing(key, traitWords[trait])
	}
}

// restricted reports whether any endpoint that was gathered may be excluded.
func (c *Cycle) restricted(now int64) bool {
	for _, i := range c.places {
		if !c.Pool.Mark(i).Restricted() {
			continue
		}
		ep := c.Pool.Endpoints[i]
		if ep.Share() < health.Full || ep.Tracker().FullAt(now) || ep.Tracker().AvoidedCount() > 0 {
			return true
		}
	}
	return false
}

// traitWords are the reasons for which endpoints that fail a trait's value are excluded.
var traitWords = [health.NumTraits]string{
	health.TraitModel: explanation.AvoidedModelFails, health.TraitClient: explanation.AvoidedClientFails,
	health.TraitTenant: explanation.AvoidedClientFails, health.TraitClass: explanation.AvoidedKindFails, health.TraitKind: explanation.AvoidedKindFails, health.TraitStreaming: explanation.AvoidedKindFails,
	health.TraitSize: explanation.AvoidedKindFails, health.TraitFeatures: explanation.AvoidedKindFails,
}

// excludeFailing excludes candidates that fail requests with a trait's value, unless most candidates do. In
// that case the endpoints are not at fault, and the rest would get all such requests.
func (c *Cycle) excludeFailing(key uint64, why string) {
	if key == 0 {
		return
	}
	fail := 0
	for _, ep := range c.endpoints {
		if ep.Tracker().Avoids(key, c.Now) {
			fail++
		}
	}
	if fail > 0 && 2*fail <= len(c.endpoints) {
		c.spare(why, func(ep *endpoint.Endpoint) bool { return ep.Tracker().Avoids(key, c.Now) })
	}
}

// spare excludes the candidates for which bad is true, unless no other endpoint has their role.
func (c *Cycle) spare(why string, bad func(*endpoint.Endpoint) bool) {
	var served endpoint.Role
	for i, ep := range c.endpoints {
		if c.keep[i] = !bad(ep); c.keep[i] {
			served |= ep.Role
		}
	}
	for i, ep := range c.endpoints {
		c.keep[i] = c.keep[i] || ep.Role&^served != 0
	}
	c.leave(why)
}

// appendReserve appends excluded endpoints that are not out as fallbacks for a single destination.
// If the profile has filters, nothing is appended, because these might have excluded the endpoints
// too. The other endpoints of a split request have the revision of the first one, so its fallbacks
// must have it too.
func (c *Cycle) appendReserve(list []string) []string {
	const enough = 2
	if len(c.reserve) == 0 || len(list) != 1 || c.ranked == 0 || len(c.rankings[0].Profile.Filters) > 0 || c.First().IsRemote() {
		return list
	}
	for _, ep := range c.reserve {
		if len(c.plan.Headers) > 0 && ep.Revision != c.First().Revision {
			continue
		}
		if len(list) <= enough && ep.Address != list[0] && !ep.Down() {
			list = append(list, ep.Address)
		}
	}
	return list
}

// serves reports whether a kept endpoint can serve requests, or no endpoint can.
func (c *Cycle) serves() bool {
	able := false
	for i, ep := range c.endpoints {
		if ep.Role&endpoint.RoleDecode != 0 {
			if able = true; c.keep[i] {
				return true
			}
		}
	}
	if able {
		return false
	}
	for _, keep := range c.keep {
		if keep {
			return true
		}
	}
	return false
}

// seat excludes candidates that have reached their permit limit while others of their role have
// not. Requests in an engine's own queue run in arrival order and cannot be moved.
func (c *Cycle) seat() {
	if c.seen&flagFull == 0 || c.pinned {
		return
	}
	var free [endpoint.Roles]bool
	for _, v := range c.views {
		free[v.Role] = free[v.Role] || !v.full()
	}
	c.keep = resize(c.keep, len(c.views))
	for i, v := range c.views {
		c.keep[i] = !v.full() || !free[v.Role]
	}
	c.keepViews(explanation.AvoidedPlaces)
}

// isolate keeps, for each role, the candidates that would lose the least if the engine crashed.
// Answers that have begun cannot be retried; waiting requests can.
func (c *Cycle) isolate() {
	less := func(a, b *endpoint.Load) bool {
		begunA, begunB := a.Requests-a.Waiting, b.Requests-b.Waiting
		return begunA < begunB || begunA == begunB && a.Requests < b.Requests
	}
	var least [endpoint.Roles]*endpoint.Load
	for _, v := range c.views {
		if l := least[v.Role]; l == nil || less(&v.Load, l) {
			least[v.Role] = &v.Load
		}
	}
	c.keep = resize(c.keep, len(c.views))
	for i, v := range c.views {
		c.keep[i] = !less(least[v.Role], &v.Load)
	}
	c.keepViews(explanation.AvoidedPrompt)
}

// keepViews removes the candidates that are not kept, with their views.
func (c *Cycle) keepViews(why string) {
	c.leave(why)
	n := 0
	for i, v := range c.views {
		if c.keep[i] {
			c.views[n], c.places[n] = v, c.places[i]
			n++
		}
	}
	c.views = c.views[:n]
}

// full reports whether the endpoint has reached its permit limit.
func (v *View) full() bool {
	places := v.Permits()
	return places > 0 && v.Load.Requests >= places
}

// Healthy reports whether the endpoint at an index of the plan is local, healthy and not full.
func (c *Cycle) Healthy(place int) bool {
	ep := c.endpoints[c.plan.Order[place]]
	return !ep.IsRemote() && ep.Share() == health.Full && !ep.Down() && !ep.Tracker().FullAt(c.Now.UnixNano())
}

// TraitsOf returns the traits by which an endpoint may fail the request and serve others. Clients
// and kinds are those of one model.
func TraitsOf(r *request.Request) (t health.Traits) {
	model := ModelKey(r)
	t[health.TraitModel] = model
	if tenant := r.TenantKey(); tenant != 0 {
		t[health.TraitClient], t[health.TraitTenant] = tenant^bits.RotateLeft64(model, 17), tenant+1
	}
	if r.Kind != request.KindOther {
		class := r.Class()
		t[health.TraitClass] = classKey(class) ^ bits.RotateLeft64(model, 31)
		for i, part := range class {
			t[health.TraitKind+health.Trait(i)] = classKey(request.Class{uint8(i), part, partMark})
		}
	}
	return t
}

// QuestionOf returns the question that is most like a request.
func QuestionOf(kind request.Kind, stream bool) health.Question {
	q := health.AskChat
	switch kind {
	case request.KindCompletions:
		q = health.AskCompletion
	case request.KindEmbeddings:
		return health.AskEmbedding
	case request.KindOther, request.KindGenerate:
		return health.AskAny
	}
	if stream {
		q++
	}
	return q
}

// partMark is in the hash of one part of a class. No whole class has it as its size.
const partMark = 255

// classKey returns the hash of a class, or of one of its parts.
func classKey(c request.Class) (key uint64) {
	for _, part := range c {
		key = (key + uint64(part) + 1) * 0x9e3779b97f4a7c15
		key ^= key >> 29
	}
	return key
}

// ModelKey returns the hash of a request's model, 0 if it names none.
func ModelKey(r *request.Request) uint64 { return endpoint.ModelKey(cmp.Or(r.Target, r.Model)) }
