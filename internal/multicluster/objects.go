package multicluster

import (
	"cmp"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/kube"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
)

// objects represents the federation in Kubernetes and exports annotated pools.
type objects struct {
	*kube.Controller
	link   *link.Link
	began  time.Time
	settle time.Duration // time after which an unheard cluster counts as silent
	local  atomic.Pointer[kube.Local]

	// Owned by the following goroutine.
	view kube.View
	turn int
}

// openObjects follows the Kubernetes objects if configured.
func (p *Part) openObjects(o *Options) (err error) {
	if o.Objects == nil {
		return nil
	}
	lease := cmp.Or(o.Link.Lease, federation.DefaultLease)
	b := &objects{link: p.link, began: time.Now(), settle: 2 * lease}
	name := kube.Name{Namespace: o.Use.Pool.Namespace, Name: o.Use.Pool.Name}
	why := ""
	if o.Write == nil {
		why = "the federation's file does not list it under exports"
	}
	k := *o.Objects
	k.Serves = func() map[kube.Name]string { return map[kube.Name]string{name: why} }
	k.View, k.Group, k.Lease = b.viewOf, name, lease
	k.Publish = func(local kube.Local) {
		b.local.Store(&local)
		p.link.SetImports(local.Imports())
	}
	k.Rank, k.Log, k.Registerer = func() int { _, turn := p.r.Group(); return turn }, p.r.Log, p.r.Registerer
	k.Drain = cmp.Or(k.Drain, o.Link.Drain, 4*lease)
	if b.Controller, err = kube.Open(k); err != nil {
		return err
	}
	p.objects = b
	if write := o.Write; write != nil {
		o.Write = func(e federation.Export) { b.write(e, write) }
	}
	return nil
}

// viewOf returns the current state of the federation.
func (b *objects) viewOf() kube.View {
	v := b.link.View()
	return kube.ViewOf(v, time.Since(b.began) > b.settle || settled(v, b.local.Load()))
}

// settled reports whether every cluster has sent a message and has answered about the exports.
func settled(v *federation.View, local *kube.Local) bool {
	if local == nil {
		return false
	}
	for _, c := range v.Clusters {
		if c.State != federation.Live {
			return false
		}
	}
	told := 0
	for _, own := range v.Exports {
		if exported, _ := local.Exported(own.Pool); exported {
			told++
		}
		for _, t := range own.Acks {
			if t.State == federation.Silent {
				return false
			}
		}
	}
	return told == len(local.Exports)
}

// write publishes a pool if its object is exported.
func (b *objects) write(e federation.Export, next func(federation.Export)) {
	local := b.local.Load()
	if local == nil {
		return
	}
	exported, draining := local.Exported(e.Pool)
	if !exported {
		b.link.SetExports(nil)
		return
	}
	e.Draining = e.Draining || draining
	next(e)
}

// withdraw marks the exports as draining.
func (b *objects) withdraw() {
	if b == nil {
		return
	}
	b.Withdraw()
	if local := b.local.Load(); local != nil {
		next := *local
		next.Exports = slices.Clone(local.Exports)
		for i := range next.Exports {
			next.Exports[i].Draining = true
		}
		b.local.Store(&next)
	}
}

// follow wakes the controller when its inputs have changed.
func (b *objects) follow(turn int) {
	if b == nil {
		return
	}
	if v := b.viewOf(); turn != b.turn || !reflect.DeepEqual(v, b.view) {
		b.view, b.turn = v, turn
		b.Wake()
	}
}

// unready returns why this replica does not have its cluster's exports yet, or "". Errors reading
// objects are in the controller's own status and not for other clusters.
func (b *objects) unready() string {
	if b == nil || b.local.Load() != nil {
		return ""
	}
	return "this replica has not read its cluster's exports"
}
