package config

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Defaults of flow control, as published.
const (
	defaultRequestTTL   = time.Minute
	defaultBandBytes    = 1_000_000_000
	defaultBandRequests = 5000
)

// Flow says how requests wait while the pool is saturated.
type Flow struct {
	MaxBytes             int64         // of all that wait; 0: no bound
	MaxRequests          int64         // 0: no bound
	DefaultRequestTTL    time.Duration // 0: no bound
	NoEndpointRequestTTL time.Duration // while there is no endpoint; 0: no bound
	DefaultBand          Band          // for priorities without a band
	NegativeBand         Band          // for those below 0
	Bands                []Band
	Eviction             bool // requests of low priority may be ended for others
}

// Band is the queue of one priority.
type Band struct {
	Priority    int
	MaxBytes    int64
	MaxRequests int64
	Fairness    string // policy type, canonical name
	Ordering    string
}

func (b *builder) readFlow(n strict.Node) {
	on, asked := b.out.Gates[gateFlowControl]
	if !n.Found() && !on {
		return
	}
	o := n.Object()
	base := Band{MaxBytes: defaultBandBytes, MaxRequests: defaultBandRequests, Fairness: defaultFairness, Ordering: defaultOrdering}
	f := &Flow{
		MaxBytes: quantity(o.Field("maxBytes"), 0), MaxRequests: quantity(o.Field("maxRequests"), 0),
		DefaultRequestTTL:    duration(o.Field("defaultRequestTTL"), defaultRequestTTL),
		NoEndpointRequestTTL: duration(o.Field("noEndpointRequestTTL"), defaultRequestTTL),
	}
	f.DefaultBand = b.readBand(o.Field("defaultPriorityBand"), base, false)
	f.NegativeBand = b.readBand(o.Field("defaultNegativePriorityBand"), f.DefaultBand, false)
	bands, _ := o.Field("priorityBands").List()
	lines := map[int]strict.Node{}
	for _, e := range bands {
		band := b.readBand(e, base, true)
		if old, twice := lines[band.Priority]; twice {
			e.Problem(firstOnLine(old), "two bands of priority %d", band.Priority)
		}
		lines[band.Priority] = e
		f.Bands = append(f.Bands, band)
	}
	f.Eviction, _ = o.Field("enableEviction").Bool()
	if ref := o.Field("usageLimitPolicyPluginRef"); ref.Found() {
		b.find(ref)
		b.note(ref, "", "there is one usage limit, that of the saturation detector")
	}
	o.Field("saturationDetector") // read with the other places of it
	o.Done()
	if n.Found() {
		b.out.effective.FlowControl = n
	}
	switch {
	case !on && !asked:
		b.note(n, "list flowControl under featureGates", "flowControl is read but not in force: its feature gate is off")
	case !on:
		b.note(n, "", "flowControl is read but not in force: its feature gate is off")
	case !b.opts.Queues:
		b.note(n, "sheddable requests (priority below 0) are refused while saturated", "flowControl is read, but requests do not wait here: they are placed at once or refused")
		b.out.Flow = f
	default:
		b.out.Flow = f
	}
}

func (b *builder) readBand(n strict.Node, base Band, explicit bool) Band {
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
	band.Fairness = b.policy(o, "fairnessPolicy", band.Fairness, plugin.KindFairness)
	band.Ordering = b.policy(o, "orderingPolicy", band.Ordering, plugin.KindOrdering)
	o.Done()
	return band
}

// policy reads a reference to a queueing policy, in the spelling with Ref or
// the shorter one. The built-in policies need not be listed under plugins.
func (b *builder) policy(o *strict.Object, field, fallback string, kind plugin.Kind) string {
	ref := o.Field(field + "Ref")
	if !ref.Found() {
		ref = o.Field(field)
	}
	if !ref.Found() {
		return fallback
	}
	name, _ := ref.Text()
	typ, known := b.opts.Table.Find(name)
	if in := b.byName[name]; in != nil || !known {
		if in = b.find(ref); in == nil {
			return fallback
		}
		typ = in.typ
	}
	if typ.Kind != kind {
		ref.Problem("", "%s: %s is %s, not %s", ref.Path(), name, article(typ.Kind), article(kind))
		return fallback
	}
	return typ.Name
}

func duration(n strict.Node, fallback time.Duration) time.Duration {
	if d, ok := n.Duration(); ok {
		return d
	}
	return fallback
}

// suffixes of quantities, as Kubernetes writes them.
var suffixes = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18}, {"", 1},
}

// quantity reads a number or a quantity such as 1Gi, rounded up. Absent and 0
// are the fallback.
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
