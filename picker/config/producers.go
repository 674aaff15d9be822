package config

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

const (
	prefixProducer = "prefixMatchInfoProducerName"
	estimate       = "approx-prefix-cache-producer"

	topologyProducer  = "topologyProducerName"
	topologyExtractor = "topology-extractor"
)

// producersOf has the types of producers, by the consumer's parameter.
var producersOf = map[string][]string{
	prefixProducer: {estimate, "precise-prefix-cache-producer", "precise-prefix-cache-scorer",
		"prefix-cache-scorer", "burst-prefix-cache-producer"},
	"inFlightLoadProducerName":          {"inflight-load-producer"},
	"latencyPredictionInfoProducerName": {"predicted-latency-producer"},
}

// bindProducers resolves the parameters that name a producer. If a file has several with different
// data, each consumer uses its own. With only one, all known data is used.
func (b *builder) bindProducers() {
	several := b.several()
	used := map[string]bool{}
	for _, in := range b.plugins {
		for field, types := range producersOf {
			at := in.params.At(field)
			if !at.IsText() || in.broken {
				continue
			}
			name, _ := at.Text()
			from := b.producer(at, name, types)
			used[name] = true
			if from == nil || in.plugin.Bind == nil || !several {
				continue
			}
			if h := from.plugin.Holdings; h != nil {
				from.apart = true
				bound := in.plugin.Bind(h)
				bound.Producer, bound.Differs, bound.Bind = in.plugin.Producer, in.plugin.Differs, in.plugin.Bind
				in.plugin = bound
			}
		}
	}
	b.noteUnbound(used)
}

// noteUnbound adds a note for scorers without a producer of their own, which use different data in
// other pickers: there the default producer's estimate, here all known data. An estimate under
// another name that no scorer refers to is unused.
func (b *builder) noteUnbound(used map[string]bool) {
	precise := false
	for _, in := range b.plugins {
		precise = precise || in.typ.Name == "precise-prefix-cache-producer"
		if in.typ.Name == estimate && in.name != estimate && !slices.Contains(in.typ.Aliases, in.name) && !used[in.name] && !in.broken {
			in.apart = true
			b.note(in.node, "set it as prefixMatchInfoProducerName of a scorer, or omit its name", "no plugin uses producer %s, so its settings have no effect", in.name)
		}
	}
	for _, in := range b.plugins {
		if precise && in.plugin.Bind != nil && !in.params.At(prefixProducer).IsText() && !in.broken {
			b.note(in.node, "", "%s is bound to no producer: it uses all data, including KV-cache events; other pickers use an estimate", in.name)
		}
	}
}

// several reports whether the file has more than one separately configured prefix producer.
func (b *builder) several() bool {
	n := 0
	for _, in := range b.plugins {
		if in.typ.Kind == plugin.KindProducer && in.plugin.Producer != nil && (in.plugin.Holdings != nil || in.plugin.Producer.Precise || in.typ.Name == estimate) {
			n++
		}
	}
	return n > 1
}

// producer returns the plugin that a parameter names: one from the file, or its type's default,
// which need not be listed.
func (b *builder) producer(at strict.Node, name string, types []string) *instance {
	if name == "" {
		return nil
	}
	if in := b.byName[name]; in != nil {
		return in
	}
	for _, t := range types {
		if t == name {
			return nil
		}
	}
	at.Problem(b.reference(name), "%s: there is no producer named %q", at.Path(), name)
	return nil
}

// bindTopology gives plugins that compare locations the labels of the extractor that they name, or of
// the one with the default name.
func (b *builder) bindTopology() {
	for _, in := range b.plugins {
		if in.plugin.BindTopology == nil || in.broken {
			continue
		}
		name := topologyExtractor
		if at := in.params.At(topologyProducer); at.IsText() {
			name, _ = at.Text()
		}
		from := b.byName[cmp.Or(name, topologyExtractor)]
		switch {
		case from != nil && from.plugin.Topology != nil:
			bound := in.plugin.BindTopology(*from.plugin.Topology)
			in.plugin.Filter, in.plugin.Scorer = bound.Filter, bound.Scorer
		case name != "" && name != topologyExtractor:
			b.note(in.params.At(topologyProducer), b.reference(name), "plugin %s: no topology-extractor is named %q: the default labels apply", in.name, name)
		}
	}
}

// bindFilters builds the filters that apply others. A filter must be listed before one that applies it,
// so that they cannot form a ring.
func (b *builder) bindFilters() {
	for _, in := range b.plugins {
		if in.plugin.BindFilters == nil || in.broken {
			continue
		}
		in.plugin.Filter = in.plugin.BindFilters(func(field, name string) cycle.Filter {
			at := in.params.At(field)
			of := b.find(at)
			switch {
			case of == nil:
				return nil
			case of.plugin.BindFilters != nil && of.plugin.Filter == nil:
				at.Problem("list it before "+in.name, "%s: filter %s is not ready", at.Path(), name)
			case of.plugin.Filter == nil:
				at.Problem("", "%s: %s is %s, not a filter", at.Path(), name, article(of.typ.Kind))
			}
			return of.plugin.Filter
		})
		in.broken = in.plugin.Filter == nil
	}
}

// bindAttributes connects plugins that read an attribute to the label or the custom gauge that a
// producer publishes under its key. Without a producer they keep working, and a note says that they
// see no value.
func (b *builder) bindAttributes() {
	for _, in := range b.plugins {
		for _, name := range in.plugin.Gauges {
			if !b.publishesGauge(plugin.Attribute{Key: name}) {
				b.note(in.node, gaugeHint(name), "plugin %s: no plugin publishes the gauge %q: no endpoint has a value", in.name, name)
			}
		}
		read := in.plugin.Attribute
		if read == nil || in.broken {
			continue
		}
		if !b.hasProducer(in, *read) {
			continue
		}
		if in.plugin.BindNumber != nil {
			b.bindNumber(in, *read)
		} else if label := b.labelOf(*read, labelsWithText); label != "" {
			in.plugin.Scorer = in.plugin.BindLabel(label).Scorer
		} else {
			b.note(in.node, "list a label-producer with this attributeKey", "plugin %s: no producer publishes attribute %q: all endpoints get the lowest score", in.name, read.Key)
		}
	}
}

// gaugeHint says which plugin publishes a gauge.
func gaugeHint(name string) string {
	if name == plugin.GaugeClusterQueue || name == plugin.GaugeClusterKVUse {
		return "list a multicluster-metrics-extractor"
	}
	return "list it in customMetrics of a core-metrics-extractor"
}

// bindNumber connects a plugin that reads a number. Without a producer it sees no value.
func (b *builder) bindNumber(in *instance, read plugin.Attribute) {
	var bound plugin.Plugin
	if label := b.labelOf(read, labelsWithNumbers); label != "" {
		bound = in.plugin.BindNumber(plugin.LabelNumber(label))
	} else if b.publishesGauge(read) {
		bound = in.plugin.BindNumber(plugin.GaugeNumber(read.Key))
	} else {
		b.note(in.node, "list it in customMetrics of a core-metrics-extractor, or in a label-producer with valueType: number",
			"plugin %s: no producer publishes attribute %q as a number: no endpoint has a value", in.name, read.Key)
		return
	}
	in.plugin.Scorer, in.plugin.Filter = bound.Scorer, bound.Filter
}

// publishesGauge reports whether a core-metrics-extractor names the gauge.
func (b *builder) publishesGauge(read plugin.Attribute) bool {
	for _, p := range b.plugins {
		if p.plugin.Metrics == nil || read.Producer != "" && p.name != read.Producer {
			continue
		}
		for _, e := range p.plugin.Metrics.Engines {
			for _, m := range e.CustomMetrics {
				if m.AttributeKey == read.Key {
					return true
				}
			}
		}
	}
	return false
}

func labelsWithText(p *plugin.Plugin) map[string]string    { return p.Labels }
func labelsWithNumbers(p *plugin.Plugin) map[string]string { return p.NumberLabels }

// hasProducer reports whether the producer that an attribute names exists, and reports a problem if not.
func (b *builder) hasProducer(in *instance, read plugin.Attribute) bool {
	if read.Producer != "" && b.byName[read.Producer] == nil {
		at := in.params.At("producer")
		at.Problem(b.reference(read.Producer), "%s: there is no producer named %q", at.Path(), read.Producer)
		in.broken = true
		return false
	}
	return true
}

// labelOf returns the label of an attribute, "" if no producer publishes it.
func (b *builder) labelOf(read plugin.Attribute, labels func(*plugin.Plugin) map[string]string) string {
	for _, p := range b.plugins {
		if label := labels(&p.plugin)[read.Key]; label != "" && (read.Producer == "" || p.name == read.Producer) {
			return label
		}
	}
	return ""
}
