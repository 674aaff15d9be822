package pd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var t0 = time.Unix(1_700_000_000, 0)

// TestScripts runs the sessions in testdata: a fleet, a handler, then requests and their results.
// -rewrite replaces the expected output.
//
//	fleet: lines "name [role=…] [held=tokens] [busy=requests] [down] [rack=…]"
//	handler [split=missing:N|always|media|never|price] [encode=media|always] [port=N] [prefill=near|kind]
//	request id=… tokens=N [after=seconds] [only=a,b] [kind=other|embeddings] [form=texts] [media=N] [whole] [prompt=TEXT]
//	first id=… [after=seconds] [from=name]
//	                                the first token arrives, from another endpoint than the first choice
//	answer id=… [status=N] [report=TEXT] [faults=TEXT] [local] [from=name]
//	                                the response headers arrive, with the sidecar's headers
//	health                          evidence for and against the endpoints
//	done id=… [status=N] [cached=N] the request ends
//	book                            requests in flight by endpoint
//	explain id=…                    the decision about stages
//	learned                         samples behind the constants
//	count                           stages by outcome, if there were any
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{t: t, now: t0, decisions: map[string]*request.Decision{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.d = d
			run, ok := map[string]func() string{
				"fleet": w.fleet, "handler": w.handler, "request": w.request, "first": w.first, "done": w.done, "answer": w.answer, "health": w.health,
				"book": w.book, "explain": w.explain, "learned": w.learned, "count": w.count,
			}[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return run()
		})
	})
}

// world is a pool, a scheduler and the requests in flight.
type world struct {
	t         *testing.T
	d         *datadriven.TestData
	now       time.Time
	pool      *endpoint.Pool
	names     map[string]string // by address
	held      map[string]int32  // by address
	scheduler *picker.Scheduler
	registry  *prometheus.Registry
	decisions map[string]*request.Decision
	log       []string // calls of the matcher
}

func (w *world) has(key string) bool { return w.d.HasArg(key) }

func (w *world) text(key string) (s string) {
	w.d.MaybeScanArgs(w.t, key, &s)
	return s
}

func (w *world) number(key string, otherwise int) int {
	w.d.MaybeScanArgs(w.t, key, &otherwise)
	return otherwise
}

func (w *world) fleet() string {
	w.pool = endpoint.NewPool(endpoint.PoolOptions{})
	w.names, w.held = map[string]string{}, map[string]int32{}
	var specs []endpoint.Spec
	busy, down := map[string]int64{}, map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(w.d.Input), "\n") {
		fields := strings.Fields(line)
		spec := endpoint.Spec{Name: fields[0], Labels: map[string]string{}, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)}
		address := spec.Addr.String()
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			var n int64
			_, _ = fmt.Sscan(value, &n)
			switch key {
			case "role":
				spec.Labels[endpoint.LabelRole] = value
			case "held":
				w.held[address] = int32(n)
			case "busy":
				busy[address] = n
			case "down":
				down[address] = true
			default:
				spec.Labels[key] = value
			}
		}
		w.names[address] = spec.Name
		specs = append(specs, spec)
	}
	w.pool.Set(specs)
	for _, ep := range w.pool.Snapshot().Endpoints {
		w.pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: busy[ep.Address]})
		ep.SetDown(down[ep.Address])
	}
	return ""
}

// named replaces addresses by names.
func (w *world) named(s string) string {
	for address, name := range w.names {
		s = strings.ReplaceAll(s, address, name)
	}
	return s
}

func (w *world) handler() string {
	deciders := map[string]plugin.Decider{"always": Always, "media": Media, "never": Never, "price": ByPrice()}
	o := Options{Decode: profile("decode"), Prefill: profile("prefill"), Encode: profile("encode")}
	if f, ok := map[string]cycle.Filter{"near": near{}, "kind": ofKind{}}[w.text("prefill")]; ok {
		o.Prefill.Filters = []cycle.ProfileFilter{{Name: w.text("prefill") + "-filter", Filter: f}}
	}
	o.SplitPrefill, o.SplitEncode = deciders[w.text("split")], deciders[w.text("encode")]
	if n, ok := strings.CutPrefix(w.text("split"), "missing:"); ok {
		var tokens int
		if _, err := fmt.Sscan(n, &tokens); err != nil {
			w.d.Fatalf(w.t, "%v", err)
		}
		o.SplitPrefill = Missing(tokens, 0)
	}
	o.PrimaryPort = uint16(w.number("port", 0))
	h, err := New(o)
	if err != nil {
		return err.Error()
	}
	w.registry = prometheus.NewRegistry()
	w.scheduler, err = picker.New(picker.Options{
		Pool: w.pool, Rules: &picker.Rules{Handler: h}, Matcher: w, Seed: 1, SampleBodies: -1,
		Registerer: w.registry, Now: func() time.Time { return w.now },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var list []string
	for _, p := range h.Profiles() {
		list = append(list, p.Name)
	}
	return "runs " + strings.Join(list, ", ")
}

func (w *world) request() string {
	w.now = w.now.Add(time.Duration(w.number("after", 0)) * time.Second)
	id := w.text("id")
	r := &request.Request{
		ID: id, Kind: request.KindChat, Model: "m", Target: "m", InputTokens: w.number("tokens", 0), Stream: !w.has("whole"),
		Body: []byte(w.text("prompt")),
	}
	switch w.text("kind") {
	case "other":
		r.Kind = request.KindOther
	case "embeddings":
		r.Kind = request.KindEmbeddings
	}
	if w.text("form") == "texts" {
		r.Prompt.Form = request.FormTexts
	}
	r.Prompt.Media = w.number("media", 0)
	if only := w.text("only"); only != "" {
		r.HasSubset = true
		for address, name := range w.names {
			if strings.Contains(only, name) {
				r.Subset = append(r.Subset, address)
			}
		}
		slices.Sort(r.Subset)
	}
	w.log = nil
	d, err := w.scheduler.Choose(context.Background(), r)
	var refused *request.Error
	if errors.As(err, &refused) {
		return "refused: " + refused.Error()
	}
	w.decisions[id] = d
	out := "to " + w.named(strings.Join(d.Endpoints, ", "))
	for _, h := range d.SetHeaders {
		out += "\n" + h.Name + ": " + w.named(h.Value)
	}
	return out + w.told()
}

func (w *world) told() string {
	if len(w.log) == 0 {
		return ""
	}
	return "\nmatcher: " + w.named(strings.Join(w.log, "; "))
}

func (w *world) first() string {
	w.now = w.now.Add(time.Duration(w.number("after", 1)) * time.Second)
	d := w.decisions[w.text("id")]
	for address, name := range w.names {
		if name == w.text("from") {
			d.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: 200, Served: address})
		}
	}
	d.Observe(request.Event{Kind: request.EventFirstToken, At: w.now})
	return w.book()
}

func (w *world) answer() string {
	e := request.Event{Kind: request.EventHeaders, At: w.now, Status: w.number("status", 200), Local: w.has("local")}
	for address, name := range w.names {
		if name == w.text("from") {
			e.Served = address
		}
	}
	e.KVTransfer = kvtransfer.ParseReport(w.text("report"))
	e.KVTransfer.Faults = kvtransfer.ParseFaults(strings.NewReplacer("+", ",", ":", "=").Replace(w.text("faults")))
	w.decisions[w.text("id")].Observe(e)
	return w.health()
}

func (w *world) health() string {
	var out []string
	for _, ep := range w.pool.Snapshot().Endpoints {
		e := ep.Tracker().Evidence(w.now)
		line := fmt.Sprintf("%s: %d good", ep.Name, e.Good)
		for c, n := range e.Bad {
			if n > 0 {
				line += fmt.Sprintf(", %d %s", n, health.Cause(c))
			}
		}
		if ep.Tracker().FullAt(w.now.UnixNano()) {
			line += ", full"
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func (w *world) done() string {
	w.log = nil
	d := w.decisions[w.text("id")]
	o := request.Outcome{At: w.now, Status: w.number("status", 200), Complete: true}
	if w.has("cached") {
		o.Usage = request.Usage{Seen: true, CachedSeen: true, PromptTokens: 5000, CachedTokens: w.number("cached", 0)}
	}
	d.Done(o)
	d.Done(o)
	return w.book() + w.told()
}

func (w *world) book() string {
	var out []string
	for _, ep := range w.pool.Snapshot().Endpoints {
		l := w.pool.LoadTracker().Local(ep, w.now)
		if l.Requests+l.Waiting+l.Prefill+l.Tokens+l.Context+int64(l.Pairs) != 0 {
			out = append(out, fmt.Sprintf("%s: %d requests, %d waiting, %d to prefill, %d tokens, %d decoding",
				ep.Name, l.Requests, l.Waiting, l.Prefill, l.Tokens, l.Context))
		}
	}
	if out == nil {
		return "nothing in flight"
	}
	return strings.Join(out, "\n")
}

func (w *world) explain() string {
	e, ok := w.scheduler.Records().Explain(w.text("id"))
	if !ok {
		return "no record"
	}
	var out []string
	for _, s := range e.Stages {
		out = append(out, w.named(fmt.Sprintf("%s: %s, %d tokens missing, choice %q", s.Stage, s.Outcome, s.Missing, s.Endpoint)))
	}
	for _, p := range e.Profiles {
		line := "profile " + p.Profile + ": picked " + strings.Join(p.Picked, " ")
		for _, row := range p.Rows {
			if row.Dropped != "" {
				line += ", " + row.Endpoint + " left out by " + row.Dropped
			}
		}
		out = append(out, w.named(line))
	}
	return strings.Join(out, "\n")
}

func (w *world) learned() string {
	var out []string
	for _, ep := range w.pool.Snapshot().Endpoints {
		out = append(out, fmt.Sprintf("%s: %.0f prefill, %.0f decode", ep.Name, ep.Cost().PrefillSeen, ep.Cost().DecodeSeen))
	}
	return strings.Join(out, "\n")
}

func (w *world) count() string {
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != "grapevine_picker_stages_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				out = append(out, fmt.Sprintf("%s %s: %v", m.GetLabel()[1].GetValue(), m.GetLabel()[0].GetValue(), n))
			}
		}
	}
	return strings.Join(out, "\n")
}

// Match, Chosen and Finished make the world a picker.Matcher.
func (w *world) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k, ep := range eps {
		held[k].Run.Tokens[block.TierGPU] = w.held[ep.Address]
	}
}

func (w *world) Chosen(_ *request.Request, ep *endpoint.Endpoint) {
	w.log = append(w.log, ep.Address+" will hold it")
}

func (w *world) Finished(_ *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, o request.Outcome) {
	w.log = append(w.log, fmt.Sprintf("%s ended with %d, held %d, usage counts %v", ep.Address, o.Status, h.Run.Total(), o.Usage.CachedSeen))
}

// profile ranks all endpoints by fewest new tokens and requests.
func profile(name string) *cycle.Profile {
	return &cycle.Profile{Name: name, Picker: ranked{}, Scorers: []cycle.ProfileScorer{{Name: "cost", Weight: 1, Scorer: cost{}}}}
}

type cost struct{}

func (cost) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -float64(c.Work(k).New) - 1000*float64(c.At(k).Load.Requests)
	}
}

type ranked struct{}

func (ranked) Pick(_ *cycle.Cycle, totals []float64, order []int32) []int32 {
	for range totals {
		at := int32(-1)
		for k, v := range totals {
			taken := false
			for _, o := range order {
				taken = taken || o == int32(k)
			}
			if !taken && (at < 0 || v > totals[at]) {
				at = int32(k)
			}
		}
		order = append(order, at)
	}
	return order
}

// ofKind keeps the endpoints with a certain value of a custom label.
type ofKind struct{}

func (ofKind) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		kind, _ := c.At(k).Label("kind")
		keep[k] = kind == "prefill"
	}
}

// near keeps the endpoints in the peer's rack, if there are any.
type near struct{}

func (near) Filter(c *cycle.Cycle, keep []bool) {
	some := false
	for k := range keep {
		rack, _ := c.At(k).Label("rack")
		peer, labelled := c.Peer.Label("rack")
		keep[k] = labelled && rack == peer
		some = some || keep[k]
	}
	for k := range keep {
		keep[k] = keep[k] || !some
	}
}
