package sidecar

import (
	"errors"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

const keyThreshold = "cache_hit_threshold"

// byStorage serves a request through a shared store. If the client may set cache_hit_threshold, the
// decode engine is tried first. It declines if it finds less than that share of the prompt.
func (x *exchange) byStorage() {
	if x.s.o.CacheHitThreshold && !kvtransfer.IsNull(x.body.Get(keyThreshold)) {
		f := x.decode(leg{body: x.text(), cached: -1, asks: true})
		if f == nil || !errors.Is(f, errDeclined) {
			x.report.Target = -1
			x.finish(f)
			return
		}
		x.decodes = 0 // it declined, as requested
	}
	var edits []kvtransfer.Edit
	if x.s.o.CacheHitThreshold {
		edits = append(edits, kvtransfer.Edit{Key: keyThreshold, Value: []byte("0")})
	}
	p := x.serially(x.api.PrefillBody(&x.body, edits...))
	if edits != nil { // the engine must not decline again
		if o, err := kvtransfer.Parse(x.body.With(edits...)); err == nil {
			x.body = o
		}
	}
	if p == nil {
		x.fallBack()
		return
	}
	d := leg{body: x.text(), cached: -1}
	if p.good() && edits == nil { // otherwise engines with support for the member report it themselves
		d.cached = x.api.Cached(p.text)
	}
	x.finish(x.decode(d))
}
