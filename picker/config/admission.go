package config

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// readDetector finds the saturation detector: in flowControl, at the top level as a reference, at
// the top level with thresholds, or the default.
func (b *builder) readDetector(top, flow strict.Node) {
	in := b.topDetector(top)
	inner := flow.Object().Field("saturationDetector")
	if inner.Found() {
		o := inner.Object()
		if ref := o.Field("pluginRef"); ref.Found() {
			in = b.find(ref)
		}
		o.Done()
		if top.Found() {
			b.note(top, "", "flowControl.saturationDetector stands above this")
		}
	}
	if in == nil {
		in = b.ensure(defaultDetector)
	}
	if in.plugin.Detector == nil {
		if !in.broken {
			at := top
			if inner.Found() {
				at = inner
			}
			at.Problem("name a saturation detector, such as "+defaultDetector, "%s is %s", in.name, article(in.typ.Kind))
		}
		return
	}
	b.out.Detector, b.out.DetectorName = in.plugin.Detector, in.name
	b.out.GaugeAge = gaugeAge(in.used)
	b.out.Rules.Admit = b.admit(in.plugin.Detector, b.out.Flow != nil)
	if b.out.Flow != nil && in.plugin.Sizing != nil {
		b.out.Flow.Sizing = *in.plugin.Sizing
	}
}

func (b *builder) topDetector(n strict.Node) *instance {
	if !n.Found() {
		return nil
	}
	o := n.Object()
	ref := o.Field("pluginRef")
	if ref.Found() {
		o.Done()
		return b.find(ref)
	}
	if !n.IsObject() {
		return nil
	}
	in := &instance{name: defaultDetector, node: n, params: n, broken: true, refs: 1}
	if old := b.byName[in.name]; old != nil {
		n.Problem(firstOnLine(old.node), "thresholds are set both here and by plugin %s", in.name)
		return old
	}
	b.build(in, defaultDetector, n)
	b.add(in)
	return in
}

// admit refuses sheddable requests while the pool is saturated, unless they are queued, those whose
// latency targets no endpoint is expected to meet, and those that a listed plugin refuses.
func (b *builder) admit(saturation plugin.Detector, wait bool) func(*cycle.Cycle) error {
	var listed []func(*cycle.Cycle) error
	for _, in := range b.plugins {
		if in.plugin.Admit != nil {
			listed = append(listed, in.plugin.Admit)
		}
	}
	return func(c *cycle.Cycle) error {
		for _, refuse := range listed {
			if err := refuse(c); err != nil {
				return err
			}
		}
		if c.Request.Priority >= 0 {
			return nil
		}
		if !wait && saturation(c) >= 1 {
			return request.Errorf(request.ReasonSaturated, "the pool is saturated, and requests of priority %d may be refused", c.Request.Priority)
		}
		if plugins.MissesTarget(c) {
			return request.Errorf(request.ReasonSaturated, "no endpoint is expected to meet the latency target, and requests of priority %d may be refused", c.Request.Priority)
		}
		return nil
	}
}

// gaugeAge returns the detector's limit for the age of gauges.
func gaugeAge(used any) time.Duration {
	data, err := json.Marshal(used)
	if err != nil {
		return 0
	}
	var p struct {
		Age string `json:"metricsStalenessThreshold"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return 0
	}
	d, _ := time.ParseDuration(p.Age)
	return d
}

func (b *builder) readObjectives(n strict.Node) {
	list, _ := n.List()
	lines := map[string]strict.Node{}
	b.out.Rules.Names.Objectives = make(map[string]int, len(list))
	for _, e := range list {
		o := e.Object()
		name, ok := o.Need("name").Text()
		priority, _ := o.Field("priority").Int(-1<<31, 1<<31-1)
		o.Done()
		if old, twice := lines[name]; ok && twice {
			e.Problem(firstOnLine(old), "two objectives are named %q", name)
		}
		lines[name] = e
		b.out.Rules.Names.Objectives[name] = int(priority)
		b.out.effective.Objectives = append(b.out.effective.Objectives, effectiveObjective{name, int(priority)})
	}
}

func (b *builder) readRewrites(n strict.Node) {
	list, _ := n.List()
	lines := map[string]strict.Node{}
	b.out.Rules.Names.Rewrites = make(map[string]request.Rewrite, len(list))
	for _, e := range list {
		o := e.Object()
		model, ok := o.Need("model").Text()
		if old, twice := lines[model]; ok && twice {
			e.Problem(firstOnLine(old), "two rewrites of model %q", model)
		}
		if ok && model == request.AnyModel {
			e.Problem("", "%s: a rewrite of a model without a name", e.Path())
		}
		lines[model] = e
		rewrite := b.readTargets(o.Need("targets"))
		o.Done()
		b.out.Rules.Names.Rewrites[model] = rewrite
		b.out.effective.addRewrite(model, rewrite)
	}
}

func (b *builder) readTargets(n strict.Node) request.Rewrite {
	list, ok := n.List()
	var out request.Rewrite
	total := 0
	for _, e := range list {
		o := e.Object()
		model, _ := o.Need("model").Text()
		weight, set := o.Field("weight").Int(0, 1_000_000)
		o.Done()
		if !set {
			weight = 1
		}
		total += int(weight)
		out = append(out, request.WeightedModel{Model: model, Weight: int(weight)})
	}
	if ok && total == 0 {
		n.Problem("", "%s: no target has a weight above 0", n.Path())
	}
	return out
}

func firstOnLine(n strict.Node) string {
	if n.Line() == 0 {
		return ""
	}
	return fmt.Sprintf("first on line %d", n.Line())
}
