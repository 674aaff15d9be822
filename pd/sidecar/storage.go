package sidecar

import "github.com/grapevine-epp/grapevine/pd/handover"

// byStorage serves a request through a shared store.
func (x *exchange) byStorage() {
	var edits []handover.Edit
	if x.s.o.CacheHitThreshold {
		edits = append(edits, handover.Edit{Key: "cache_hit_threshold", Value: []byte("0")})
	}
	p := x.serially(x.api.prefillBody(&x.body, edits...))
	if p == nil {
		x.fallBack()
		return
	}
	d := leg{body: x.body.With(edits...), cached: -1}
	if p.good() {
		d.cached = x.api.cached(p.text)
	}
	x.finish(x.decode(d))
}
