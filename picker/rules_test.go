package picker

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// TestAnswerLengthsAreLearned: the length of a complete answer is learned, and of no other one.
func TestAnswerLengthsAreLearned(t *testing.T) {
	whole := request.Outcome{Status: 200, Complete: true, Usage: request.Usage{Seen: true, OutputTokens: 4000}}
	for _, c := range []struct {
		name   string
		kind   request.Kind
		tokens int // observed events
		change func(*request.Outcome)
		learns bool
	}{
		{name: "complete", kind: request.KindChat, change: func(*request.Outcome) {}, learns: true},
		{name: "counted by events", kind: request.KindChat, tokens: 4000, change: func(o *request.Outcome) { o.Usage = request.Usage{} }, learns: true},
		{name: "no count", kind: request.KindChat, change: func(o *request.Outcome) { o.Usage = request.Usage{} }},
		{name: "an error", kind: request.KindChat, change: func(o *request.Outcome) { o.Status = 400 }},
		{name: "cut off", kind: request.KindChat, change: func(o *request.Outcome) { o.Complete = false }},
		{name: "an error inside", kind: request.KindChat, change: func(o *request.Outcome) { o.Broken = true }},
		{name: "not closed", kind: request.KindChat, change: func(o *request.Outcome) { o.Unclosed = true }},
		{name: "another call", kind: request.KindOther, change: func(*request.Outcome) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScheduler(t, Options{Pool: newPool(1)})
			before := s.opts.Pool.Answers().Expect("m", 0)
			for range 20 {
				f := &flight{s: s, request: &request.Request{Kind: c.kind, Target: "m"}, tokens: c.tokens}
				o := whole
				c.change(&o)
				f.learnAnswer(&o)
			}
			if learned := s.opts.Pool.Answers().Expect("m", 0) != before; learned != c.learns {
				t.Errorf("expected length is %v, was %v: learned %v, want %v", s.opts.Pool.Answers().Expect("m", 0), before, learned, c.learns)
			}
		})
	}
}

// TestShortAnswersCount: an answer much shorter than those of other endpoints counts only if all of
// it was seen.
func TestShortAnswersCount(t *testing.T) {
	whole := request.Outcome{Status: 200, Complete: true, Usage: request.Usage{Seen: true, OutputTokens: 1}}
	for _, c := range []struct {
		name   string
		change func(*flight, *request.Outcome)
		short  bool
	}{
		{"short", func(*flight, *request.Outcome) {}, true},
		{"counted by events", func(f *flight, o *request.Outcome) { f.tokens, o.Usage = 1, request.Usage{} }, false}, // another unit
		{"not sampled", func(f *flight, _ *request.Outcome) { f.evidence.head = 0 }, false},
		{"cut off", func(_ *flight, o *request.Outcome) { o.Complete = false }, false},
		{"an error", func(_ *flight, o *request.Outcome) { o.Status = 500 }, false},
		{"its end was not seen", func(_ *flight, o *request.Outcome) { o.Unseen = true }, false},
		{"not closed", func(_ *flight, o *request.Outcome) { o.Unclosed = true }, false},
		{"in a remote cluster", func(f *flight, _ *request.Outcome) { f.ep = newClusters(nil).ep }, false},
		{"no tokens", func(_ *flight, o *request.Outcome) { o.Usage.OutputTokens = 0 }, false},
		{"another limit", func(f *flight, _ *request.Outcome) { f.request.MaxTokens = 1 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScheduler(t, Options{Pool: newPool(6)})
			eps := s.opts.Pool.Snapshot().Endpoints
			answer := func(ep *endpoint.Endpoint, tokens int, change func(*flight, *request.Outcome)) bool {
				f := &flight{s: s, request: chatRequest("r", 100), ep: ep}
				f.evidence.head = 7
				o := whole
				o.Usage.OutputTokens = tokens
				change(f, &o)
				return f.isShort(&o)
			}
			for i := range 400 {
				answer(eps[1+i%5], 300+i%7, func(*flight, *request.Outcome) {})
			}
			short := false
			for range 20 {
				short = answer(eps[0], 1, c.change) || short
			}
			if short != c.short {
				t.Errorf("answer is short: %v, want %v", short, c.short)
			}
		})
	}
}

// TestBodiesAreNotRequested: no response body is requested if sampling is off, or of calls that
// generate nothing.
func TestBodiesAreNotRequested(t *testing.T) {
	for _, c := range []struct {
		sample float64
		kind   request.Kind
		want   bool
	}{{0, request.KindChat, true}, {-1, request.KindChat, false}, {-1, request.KindResponses, false}, {0, request.KindOther, false}} {
		s := newScheduler(t, Options{Pool: newPool(1), SampleBodies: c.sample})
		r := chatRequest("r", 10)
		r.Kind = c.kind
		d, err := s.Choose(t.Context(), r)
		if err != nil || d.WantBody != c.want {
			t.Errorf("sample %v, kind %d: WantBody = %v, %v, want %v", c.sample, c.kind, d.WantBody, err, c.want)
		}
	}
}

// TestModelTarget: the body gets the model's new name only if the body names a model.
func TestModelTarget(t *testing.T) {
	for _, c := range []struct {
		target string
		span   [2]int
		want   string
	}{{"other", [2]int{9, 12}, "other"}, {"other", [2]int{}, ""}, {"m", [2]int{9, 12}, ""}} {
		s := newScheduler(t, Options{Pool: newPool(1)})
		r := chatRequest("r", 10)
		r.Target, r.ModelSpan = c.target, c.span
		d, err := s.Choose(t.Context(), r)
		if err != nil || d.ModelTarget != c.want {
			t.Errorf("target %q, model at %v: ModelTarget = %q, %v, want %q", c.target, c.span, d.ModelTarget, err, c.want)
		}
	}
}

// TestInvalidRules: rules without a handler are rejected, and the old ones stay.
func TestInvalidRules(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(1)})
	for _, r := range []*Rules{nil, {}} {
		if err := s.SetRules(r); err == nil {
			t.Errorf("SetRules(%v) = nil", r)
		}
		if _, err := New(Options{Pool: newPool(1), Rules: r}); err == nil {
			t.Errorf("New() accepts rules %v", r)
		}
	}
	if _, err := New(Options{Rules: &Rules{Handler: single{testProfile()}}}); err == nil {
		t.Error("New() needs no pool")
	}
	if _, err := s.Choose(t.Context(), chatRequest("r", 10)); err != nil {
		t.Errorf("after rejected rules: %v", err)
	}
	if err := s.SetRules(&Rules{Handler: single{testProfile()}, Names: request.Names{Rewrites: map[string]request.Rewrite{"m": {{Model: "x", Weight: 1}}}}}); err != nil || !s.Rewrites() {
		t.Errorf("SetRules() = %v, rewrites: %v", err, s.Rewrites())
	}
}

// TestPairsAreLogged: the log names a pair of endpoints that is turned off with the reason, and reports
// when it works again.
func TestPairsAreLogged(t *testing.T) {
	var log bytes.Buffer
	pool := newPool(2)
	s := newScheduler(t, Options{Pool: pool, Log: slog.New(slog.NewTextHandler(&log, nil))})
	eps := pool.Snapshot().Endpoints
	answer := func(report kvtransfer.Report) {
		f := &flight{s: s, request: chatRequest("x", 100), ep: eps[0], helpers: make([]helper, 1)}
		f.helpers[0].Leads = true
		f.SetHeaders = []request.HeaderSet{{Name: "x-other", Value: "10.0.0.0:8000"}, {Name: request.HeaderPrefiller, Value: eps[1].Address}}
		f.readTransferReport(&request.Event{Status: 200, At: t0, KVTransfer: report})
		f.readTransferReport(&request.Event{Status: 200, At: t0, KVTransfer: kvtransfer.Report{Known: true, Target: -1}}) // has no effect
	}
	for range 5 {
		answer(kvtransfer.Report{Known: true, Target: -1, Local: kvtransfer.LocalTransfer})
	}
	if text := log.String(); strings.Count(text, "turned off") != 1 || !strings.Contains(text, "fails with the KV transfers") || strings.Contains(text, "works again") {
		t.Errorf("log after failed transfers:\n%s", text)
	}
	log.Reset()
	for range 30 {
		answer(kvtransfer.Report{Known: true, Target: 0})
	}
	if text := log.String(); strings.Count(text, "works again") != 1 || strings.Contains(text, "turned off") {
		t.Errorf("log after successful transfers:\n%s", text)
	}
}

// TestLoadsAreLearned: the saving of blocks in host memory is learned from requests that loaded
// enough of them, with no queue ahead.
func TestLoadsAreLearned(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*flight)
		learns bool
	}{
		{"loaded from host memory", func(*flight) {}, true},
		{"nothing to load", func(f *flight) { f.held.Run.Tokens[block.TierCPU] = 0 }, false},
		{"also from disk", func(f *flight) { f.held.Run.Tokens[block.TierDisk] = 100 }, false},
		{"behind others", func(f *flight) { f.queued.Ahead.Waiting = 1 }, false},
		{"also from another endpoint", func(f *flight) { f.fetched = 16 }, false},
		{"too little to measure", func(f *flight) { f.held.Run.Tokens[block.TierCPU] = 1 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScheduler(t, Options{Pool: newPool(1)})
			ep := s.opts.Pool.Snapshot().Endpoints[0]
			usual := cycle.DefaultTiers[block.TierCPU]
			before := s.opts.Pool.Loads().Or(usual)
			for range 50 {
				f := &flight{s: s, request: chatRequest("r", 100_000), ep: ep, queued: endpoint.Queued{Own: endpoint.Work{Input: 100_000, New: 10_000}}}
				f.held.Run.Tokens[block.TierGPU], f.held.Run.Tokens[block.TierCPU] = 10_000, 80_000
				c.change(f)
				f.learnLoads(10 * time.Second)
			}
			if learned := s.opts.Pool.Loads().Or(usual) != before; learned != c.learns {
				t.Errorf("saving is %v, was %v: learned %v, want %v", s.opts.Pool.Loads().Or(usual), before, learned, c.learns)
			}
		})
	}
}

// TestRemoteRefusals: a remote cluster that lacks capacity is not unhealthy, even if this replica has
// sent it nothing else.
func TestRemoteRefusals(t *testing.T) {
	rc := newClusters(func(float64) bool { return true })
	s := newScheduler(t, Options{Pool: newPool(1), Gate: &scriptedGate{refusal: request.Errorf(request.ReasonSaturated, "full")}, RemoteClusters: rc, SampleBodies: -1})
	rc.ep.SetGauges(endpoint.Gauges{At: t0})
	d, err := s.Choose(t.Context(), chatRequest("r", 100))
	if err != nil {
		t.Fatal(err)
	}
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0, Status: 503, Served: d.Endpoints[0]})
	d.Done(request.Outcome{At: t0, Status: 503, Complete: true})
	if len(rc.outcomes) != 1 || rc.outcomes[0].Cause != health.Void || !rc.outcomes[0].Full {
		t.Errorf("outcomes %+v, want one for lack of capacity", rc.outcomes)
	}
}

// TestRetriesNeedTwoEndpoints: a request whose engine has begun is retried only if the plan has a
// second endpoint, and no endpoint computes a part of it.
func TestRetriesNeedTwoEndpoints(t *testing.T) {
	for _, c := range []struct {
		name    string
		pool    int
		subset  []string
		handler func(*cycle.Profile) cycle.ProfileHandler
		want    request.Tries
	}{
		{name: "two endpoints", pool: 2, want: request.TriesOnce},
		{name: "one endpoint", pool: 1, want: request.TriesSafe},
		{name: "one endpoint is allowed", pool: 2, subset: []string{"10.0.0.1:8000"}, want: request.TriesSafe},
		{name: "split", pool: 2, handler: func(p *cycle.Profile) cycle.ProfileHandler { return splitting{p} }, want: request.TriesSafe},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Pool: newPool(c.pool)}
			if c.handler != nil {
				o.Rules = &Rules{Handler: c.handler(testProfile())}
			}
			r := chatRequest("r", 1000)
			r.Subset, r.HasSubset = c.subset, c.subset != nil
			d, err := newScheduler(t, o).Choose(t.Context(), r)
			if err != nil || d.Tries != c.want {
				t.Errorf("Tries = %v, %v, want %v", d.Tries, err, c.want)
			}
		})
	}
}

// TestSessionsFollowTheLatestRequest: a session is bound to the endpoint of its latest request by
// the time of the decision. An older binding from another replica does not replace it.
func TestSessionsFollowTheLatestRequest(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(2)})
	eps := s.opts.Pool.Snapshot().Endpoints
	var bound []sessions.Binding
	s.Sessions().OnBind(func(b sessions.Binding) { bound = append(bound, b) })
	r := chatRequest("r", 10)
	r.Session, r.Tenant = "s", "t"
	d, err := s.Choose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	second := eps[1]
	if d.Endpoints[0] == second.Address {
		second = eps[0]
	}
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0.Add(time.Second), Status: 200, Served: second.Address})
	key := sessions.KeyIn("t", "s")
	want := []sessions.Binding{
		{Session: key, Endpoint: s.opts.Pool.Snapshot().Lookup(d.Endpoints[0]).ID, At: t0}, {Session: key, Endpoint: second.ID, At: t0.Add(time.Second)},
	}
	if !slices.Equal(bound, want) {
		t.Errorf("bindings %+v, want %+v", bound, want)
	}
}

// TestWarmUpEnds: a warm-up that was answered has computed its prompt, and one that failed is held
// against the prompt unless the engine was full.
func TestWarmUpEnds(t *testing.T) {
	for status, failing := range map[int]bool{200: false, 400: false, 500: true, 502: true, 503: false, 0: true, StatusUnsent: false} {
		s := newScheduler(t, Options{Pool: newPool(1)})
		w := &warmUpInFlight{s: s, prompt: 7}
		s.opts.Pool.LoadTracker().Open(&w.ticket, s.opts.Pool.Snapshot().Endpoints[0], endpoint.Work{Input: 10, New: 10}, t0)
		w.ended(t0, status)
		if got := s.prompts.Failing(7, t0); got != failing {
			t.Errorf("status %d: prompt is failing: %v, want %v", status, got, failing)
		}
		if n := s.opts.Pool.LoadTracker().Local(s.opts.Pool.Snapshot().Endpoints[0], t0).Requests; n != 0 {
			t.Errorf("status %d: %d requests are tracked", status, n)
		}
	}
}
