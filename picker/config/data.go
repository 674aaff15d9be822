package config

import (
	"github.com/grapevine-epp/grapevine/picker/discovery/strict"
	"github.com/grapevine-epp/grapevine/picker/plugins"
)

// readData reads where endpoints and their metrics come from.
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
	b.readDiscovery(o.Field("discovery"))
	b.readForeignSharing(o)
	o.Done()
}

func (b *builder) readDiscovery(n strict.Node) {
	if !n.Found() {
		return
	}
	o := n.Object()
	ref := o.Need("pluginRef")
	in := b.find(ref)
	o.Done()
	switch {
	case in == nil:
	case in.plugin.File == nil:
		ref.Problem("file-discovery is one", "%s is %s, not a discovery", in.name, article(in.typ.Kind))
	default:
		b.out.Discovery = in.plugin.File
		b.out.effective.Discovery = in.name
	}
}

// readForeignSharing accepts what other pickers need for replicas to know of
// each other.
func (b *builder) readForeignSharing(o *strict.Object) {
	peers := o.Field("peerDiscovery")
	if po := peers.Object(); peers.Found() {
		b.find(po.Need("pluginRef"))
		po.Done()
	}
	syncer, interval := o.Field("crossReplicaSyncerPluginRef"), o.Field("crossReplicaSyncInterval")
	if syncer.Found() {
		b.find(syncer)
	}
	interval.Duration()
	for _, n := range []strict.Node{peers, syncer, interval} {
		if n.Found() {
			b.note(n, "see the flags of serve", "%s: replicas find each other and share their state by themselves", n.Path())
			return
		}
	}
}

// readParsers reads how requests are understood, in both generations.
func (b *builder) readParsers(doc *strict.Object) {
	b.readParser(doc.Field("parser"))
	n := doc.Field("requestHandler")
	o := n.Object()
	b.readParser(o.Field("parser"))
	list, _ := o.Field("parsers").List()
	for _, e := range list {
		b.readParser(e)
	}
	o.Done()
}

func (b *builder) readParser(n strict.Node) {
	if !n.Found() {
		return
	}
	o := n.Object()
	ref := o.Need("pluginRef")
	if name, ok := ref.Text(); ok && b.byName[name] == nil {
		if typ, known := b.opts.Table.Find(name); known && typ.Kind == plugins.KindParser {
			o.Done()
			return // built in, need not be listed
		}
	}
	if in := b.find(ref); in != nil && in.typ.Kind != plugins.KindParser {
		ref.Problem("", "%s is %s, not a parser", in.name, article(in.typ.Kind))
	}
	o.Done()
}
