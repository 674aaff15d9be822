package sidecar

import "github.com/grapevine-epp/grapevine/internal/jsonedit"

// Storage is a store that both engines share, such as LMCache: what prefill has
// computed decode finds by its content, without a hand-over.
var Storage Connector = storage{}

type storage struct{}

// Name implements Connector.
func (storage) Name() string { return "shared-storage" }

func (storage) serve(x *exchange) {
	var edits []jsonedit.Edit
	if x.s.o.CacheHitThreshold {
		edits = append(edits, jsonedit.Edit{Key: "cache_hit_threshold", Value: []byte("0")})
	}
	p := x.serially(x.api.prefillBody(&x.body, edits...))
	if p == nil {
		x.fallBack()
		return
	}
	d := leg{body: x.body.With(edits...), cached: -1}
	if p.fault == "" {
		d.cached = x.api.cached(p.text)
	}
	x.finish(x.decode(d))
}
