package config

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// Metrics configure the location and format of engines' metrics pages.
type Metrics struct {
	Dialects     *scrape.Dialects // nil: the built-in names
	Scheme, Path string           // for endpoints without their own; "" for the defaults
	TLS          plugin.PageTLS
	Port         int  // 0: the endpoint's own port
	ByLabel      bool // see plugin.EngineMetrics
}

// readMetrics collects the plugins' settings for metrics pages.
func (b *builder) readMetrics() {
	var source, names *instance
	for _, in := range b.plugins {
		m := in.plugin.Metrics
		switch {
		case m == nil:
		case m.Scheme != "":
			if source != nil {
				b.note(in.node, "", "the location of metrics pages comes from %s; %s has no effect", in.name, source.name)
			}
			source = in
			b.out.Metrics.Scheme, b.out.Metrics.Path, b.out.Metrics.TLS = m.Scheme, m.Path, m.TLS
			b.out.Metrics.Port, b.out.Metrics.ByLabel = m.Port, m.ByLabel
		case names != nil:
			in.node.Problem(firstOnLine(names.node), "two plugins configure how metrics are read: %s and %s", names.name, in.name)
		default:
			names = in
			b.dialects(in, m)
		}
	}
}

func (b *builder) dialects(in *instance, m *plugin.EngineMetrics) {
	if m.Label == "" && m.Default == "" && len(m.Engines) == 0 {
		return
	}
	var list []scrape.Dialect
	for i, e := range m.Engines {
		read := func(field, spec string) scrape.Series {
			at := in.params.At(fmt.Sprintf("engineConfigs[%d].%s", i, field))
			if top := in.params.At(field); !at.IsText() && top.IsText() { // the oldest form
				at = top
			}
			return series(at, spec)
		}
		list = append(list, scrape.Dialect{
			Name: e.Name, Waiting: read("queuedRequestsSpec", e.QueuedRequests), Running: read("runningRequestsSpec", e.RunningRequests),
			Use: read("kvUsageSpec", e.KVUsage), LoRA: read("loraSpec", e.LoRA), Cache: read("cacheInfoSpec", e.CacheInfo),
			Custom: custom(in.params.At(fmt.Sprintf("engineConfigs[%d].customMetrics", i)), e.CustomMetrics),
		})
	}
	b.out.Metrics.Dialects = scrape.NewDialects(m.Label, m.Default, list)
}

// custom returns custom gauges in the scanner's form. They stand at at.
func custom(at strict.Node, list []plugin.CustomMetric) []scrape.CustomGauge {
	var out []scrape.CustomGauge
	for i, m := range list {
		rule, _ := scrape.ParseCombine(m.Combine) // the extractor has checked it
		out = append(out, scrape.CustomGauge{
			Name: m.AttributeKey, Series: series(at.At(fmt.Sprintf("[%d].metricSpec", i)), m.MetricSpec), Combine: rule,
		})
	}
	return out
}

// series parses the name of a gauge. Errors are reported at at.
func series(at strict.Node, spec string) scrape.Series {
	s, err := scrape.ParseSeries(spec)
	if err != nil {
		at.Problem("write name, or name{label=value}", "%v", err)
	}
	return s
}
