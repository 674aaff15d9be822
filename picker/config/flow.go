package config

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Published defaults of flow control.
const (
	defaultRequestTTL   = time.Minute
	defaultBandBytes    = 1_000_000_000
	defaultBandRequests = 5000
)

// Flow configures the queueing of requests while the pool is saturated.
type Flow struct {
	Queue  rules.Options
	Limit  func() rules.UsageLimit
	Sizing rules.Sizing

	Identity []gate.Source
}

// Gate returns the gate's configuration, nil if requests are not queued.
func (f *Flow) Gate() *gate.Config {
	if f == nil {
		return nil
	}
	return &gate.Config{Sizing: f.Sizing, Identity: f.Identity, Queue: func() rules.Options {
		o := f.Queue
		o.Limit = f.Limit()
		return o
	}}
}

func (b *builder) readFlow(n strict.Node) {
	on, asked := b.out.Gates[gateFlowControl]
	if !n.Found() && !on {
		return
	}
	o := n.Object()
	base := rules.Band{MaxBytes: defaultBandBytes, MaxRequests: defaultBandRequests}
	q := rules.Options{MaxBytes: quantity(o.Field("maxBytes"), 0), MaxRequests: quantity(o.Field("maxRequests"), 0)}
	q.TTL = duration(o.Field("defaultRequestTTL"), defaultRequestTTL)
	q.EmptyTTL = duration(o.Field("noEndpointRequestTTL"), q.TTL)
	q.Default = b.readBand(o.Field("defaultPriorityBand"), base, false)
	q.Negative = b.readBand(o.Field("defaultNegativePriorityBand"), q.Default, false)
	bands, _ := o.Field("priorityBands").List()
	lines := map[int]strict.Node{}
	for _, e := range bands {
		band := b.readBand(e, base, true)
		if old, twice := lines[band.Priority]; twice {
			e.Problem(firstOnLine(old), "two bands of priority %d", band.Priority)
		}
		lines[band.Priority] = e
		q.Bands = append(q.Bands, band)
	}
	q.Evict, _ = o.Field("enableEviction").Bool()
	f := &Flow{Queue: q, Limit: func() rules.UsageLimit { return rules.StaticLimit{} }}
	if ref := o.Field("usageLimitPolicyPluginRef"); ref.Found() {
		if in := b.policyOf(ref, plugin.KindUsage); in != nil {
			f.Limit = in.Limit
		}
	}
	f.Identity = readIdentity(o.Field("fairnessFrom"))
	o.Field("saturationDetector") // read together with its other places
	o.Done()
	if n.Found() {
		b.out.effective.FlowControl = n
	}
	switch {
	case !on && !asked:
		b.note(n, "list flowControl under featureGates", "flowControl is read but not in force: its feature gate is off")
	case !on:
		b.note(n, "", "flowControl is read but not in force: its feature gate is off")
	default:
		b.out.Flow = f
	}
}

func (b *builder) readBand(n strict.Node, base rules.Band, explicit bool) rules.Band {
	o := n.Object()
	band := base
	priority := o.Field("priority")
	if explicit {
		priority = o.Need("priority")
	}
	v, _ := priority.Int(-1<<31, 1<<31-1)
	band.Priority = int(v)
	band.MaxBytes = quantity(o.Field("maxBytes"), base.MaxBytes)
	band.MaxRequests = quantity(o.Field("maxRequests"), base.MaxRequests)
	if n := o.Field("defaultRequestTTL"); n.Found() {
		if ttl, ok := n.Duration(); ok && ttl > 0 {
			band.TTL = ttl
		} else if ok {
			band.TTL = -1
		}
	}
	if p := b.policy(o, "fairnessPolicy", plugin.KindFairness); p != nil {
		band.Fairness, band.Weights, band.Service = p.Fairness, p.Weights, p.Service
	}
	if p := b.policy(o, "orderingPolicy", plugin.KindOrdering); p != nil {
		band.Ordering = p.Ordering
	}
	o.Done()
	return band
}

// policy resolves a reference to a queueing policy, with or without the suffix Ref; nil if there is
// none.
func (b *builder) policy(o *strict.Object, field string, kind plugin.Kind) *plugin.FlowPolicy {
	ref := o.Field(field + "Ref")
	if !ref.Found() {
		ref = o.Field(field)
	}
	if !ref.Found() {
		return nil
	}
	return b.policyOf(ref, kind)
}

// policyOf returns the policy that ref names. Built-in ones need not be listed under plugins.
func (b *builder) policyOf(ref strict.Node, kind plugin.Kind) *plugin.FlowPolicy {
	name, _ := ref.Text()
	typ, known := b.opts.Table.Find(name)
	var built plugin.Plugin
	if in := b.byName[name]; in != nil || !known {
		if in = b.find(ref); in == nil {
			return nil
		}
		typ, built = in.typ, in.plugin
	} else if typ.Kind == kind {
		var err error
		if built, err = typ.New(nil); err != nil {
			ref.Problem("list it under plugins, with its parameters", "%s: %s cannot be used as it is: %v", ref.Path(), name, err)
			return nil
		}
	}
	if typ.Kind != kind {
		ref.Problem("", "%s: %s is %s, not %s", ref.Path(), name, article(typ.Kind), article(kind))
		return nil
	}
	return built.Flow
}

func duration(n strict.Node, fallback time.Duration) time.Duration {
	if d, ok := n.Duration(); ok {
		return d
	}
	return fallback
}

// suffixes of Kubernetes quantities.
var suffixes = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18}, {"", 1},
}

// quantity reads a number or a quantity such as 1Gi, rounded up. Absent and 0 return the fallback.
func quantity(n strict.Node, fallback int64) int64 {
	if !n.Found() {
		return fallback
	}
	var v float64
	var ok bool
	if n.IsText() {
		s, _ := n.Text()
		v, ok = parseQuantity(s)
	} else {
		var i int64
		if i, ok = n.Int(0, math.MaxInt64); !ok {
			return fallback
		}
		v = float64(i)
	}
	if !ok || v < 0 || v >= math.MaxInt64 {
		n.Problem("a number, or one with a unit: 500M, 1Gi", "%s must be a quantity", n.Path())
		return fallback
	}
	if v == 0 {
		return fallback
	}
	return int64(math.Ceil(v))
}

func parseQuantity(s string) (float64, bool) {
	for _, x := range suffixes {
		digits, ok := strings.CutSuffix(s, x.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) && !strings.ContainsAny(digits, "xX_pP") {
			return v * x.factor, true
		}
	}
	return 0, false
}

// readIdentity reads the flow sources for requests without a fairness ID.
func readIdentity(n strict.Node) (sources []gate.Source) {
	list, _ := n.List()
	for _, e := range list {
		name, ok := e.Text()
		if !ok {
			continue
		}
		switch s := gate.Source(name); s {
		case gate.FromSession, gate.FromUser, gate.FromModel, gate.FromCertificate:
			sources = append(sources, s)
		default:
			if header, found := strings.CutPrefix(name, gate.FromHeader); !found || header == "" {
				e.Problem("session, user, model, certificate or header:NAME", "%q is not a source of flows", name)
				continue
			}
			sources = append(sources, gate.Source(strings.ToLower(name)))
		}
	}
	return sources
}

// nameBy adds the plugins' flow headers after those in the file.
func (f *Flow) nameBy(headers []string) {
	for _, h := range headers {
		f.Identity = append(f.Identity, gate.Source(gate.FromHeader+h))
	}
}
