package config

import (
	"slices"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// readData reads the sources of endpoints and their metrics.
func (b *builder) readData(doc *strict.Object) {
	n, older := doc.Field("dataLayer"), doc.Field("data")
	if n.Found() && older.Found() {
		older.Problem("data is the older name", "both dataLayer and data are given")
	}
	if !n.Found() {
		n = older
	}
	o := n.Object()
	o.Field("injectDefaults").Bool()
	sources, _ := o.Field("sources").List()
	for _, e := range sources {
		s := e.Object()
		b.find(s.Need("pluginRef"))
		extractors, _ := s.Field("extractors").List()
		for _, x := range extractors {
			xo := x.Object()
			b.find(xo.Need("pluginRef"))
			xo.Done()
		}
		s.Done()
	}
	peers := b.readDiscovery(o.Field("discovery"))
	b.readForeignSharing(o, peers)
	o.Done()
}

// readDiscovery reads the source of endpoints, in both generations. It returns the newer
// generation's source of replicas.
func (b *builder) readDiscovery(n strict.Node) (peers strict.Node) {
	o := n.Object()
	peers = o.Field("peers")
	endpoints, older := o.Field("endpoints"), o.Field("pluginRef")
	o.Done()
	switch {
	case endpoints.Found() && older.Found():
		older.Problem("pluginRef is the older place", "both %s and %s are given", endpoints.Path(), older.Path())
	case endpoints.Found():
		o = endpoints.Object()
		b.discover(o.Need("pluginRef"))
		o.Done()
	case n.Found() && !peers.Found():
		b.discover(o.Need("pluginRef"))
	default:
		b.discover(older)
	}
	return peers
}

func (b *builder) discover(ref strict.Node) {
	in := b.find(ref)
	switch {
	case in == nil:
	case in.plugin.File == nil:
		ref.Problem("file-discovery is one", "%s is %s, not a discovery", in.name, article(in.typ.Kind))
	default:
		b.out.Discovery = in.plugin.File
		b.out.effective.Discovery = in.name
	}
}

// readForeignSharing accepts other pickers' settings for sharing between replicas, in all
// generations.
func (b *builder) readForeignSharing(o *strict.Object, peers strict.Node) {
	said := []strict.Node{peers, o.Field("peerDiscovery"), o.Field("crossReplica")}
	for _, n := range said[:2] {
		if po := n.Object(); n.Found() {
			b.find(po.Need("pluginRef"))
			po.Done()
		}
	}
	newer := said[2].Object()
	refs := []strict.Node{newer.Field("syncerPluginRef"), o.Field("crossReplicaSyncerPluginRef")}
	times := []strict.Node{
		newer.Field("syncInterval"), newer.Field("publishTimeout"), o.Field("crossReplicaSyncInterval"), o.Field("crossReplicaPublishTimeout"),
	}
	newer.Done()
	for _, n := range refs {
		if n.Found() {
			b.find(n)
		}
	}
	for _, n := range times {
		n.Duration()
	}
	for _, n := range slices.Concat(said, refs, times) {
		if n.Found() {
			b.note(n, "see the flags of serve", "%s: replicas find each other and share their state by themselves", n.Path())
			return
		}
	}
}

// readParsers reads the request parsers, in both generations.
func (b *builder) readParsers(doc *strict.Object) {
	b.readParser(doc.Field("parser"))
	n := doc.Field("requestHandler")
	o := n.Object()
	b.readParser(o.Field("parser"))
	list, _ := o.Field("parsers").List()
	for _, e := range list {
		b.readParser(e)
	}
	if propagate := o.Field("propagatePriority"); propagate.Found() {
		if on, ok := propagate.Bool(); ok && on {
			b.propagatePriority(propagate)
		}
	}
	o.Done()
}

// propagatePriority sends engines the priority of the request's objective.
func (b *builder) propagatePriority(at strict.Node) {
	for _, in := range b.plugins {
		if in.plugin.Producer != nil && in.plugin.Producer.Urgency != nil {
			at.Problem("remove one of them", "both %s and plugin %s set the priority of requests at engines", at.Path(), in.name)
			return
		}
	}
	b.out.Rules.Propagates, b.out.effective.Propagates = true, true
}

func (b *builder) readParser(n strict.Node) {
	if !n.Found() {
		return
	}
	o := n.Object()
	ref := o.Need("pluginRef")
	if name, ok := ref.Text(); ok && b.byName[name] == nil {
		if typ, known := b.opts.Table.Find(name); known && typ.Kind == plugin.KindParser {
			o.Done()
			return // built in, need not be listed
		}
	}
	if in := b.find(ref); in != nil && in.typ.Kind != plugin.KindParser {
		ref.Problem("", "%s is %s, not a parser", in.name, article(in.typ.Kind))
	}
	o.Done()
}
