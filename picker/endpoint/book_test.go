package endpoint

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"pgregory.net/rapid"
)

func TestTicket(t *testing.T) {
	p := newPool(1)
	ep, b := p.Snapshot().Endpoints[0], p.LoadTracker()
	changes := 0
	b.OnChange(func(*Endpoint) { changes++ })
	var k Ticket
	b.Open(&k, ep, Work{Input: 100, New: 40}, t0)
	rate, busy := 1.0/60, PriorCost.Prefill(Work{Input: 100, New: 40})/300
	want := Load{Requests: 1, Waiting: 1, Prefill: 40, Pairs: 40 * 80, Tokens: 100, Rate: rate, Busy: busy, LastFirst: t0.UnixNano()}
	if diff := cmp.Diff(want, b.Load(ep, t0)); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	k.Generated(5) // before the first token: ignored
	if !k.FirstToken(t0.Add(time.Second)) || k.FirstToken(t0) {
		t.Error("first token must count once")
	}
	k.Generated(7)
	want = Load{Requests: 1, Tokens: 107, Context: 107, Rate: rate, Busy: busy, LastFirst: t0.Add(time.Second).UnixNano()}
	if diff := cmp.Diff(want, b.Load(ep, t0)); diff != "" {
		t.Errorf("decode (-want +got):\n%s", diff)
	}
	if !k.Release() || k.Release() || k.FirstToken(t0) {
		t.Error("release must count once")
	}
	l := b.Load(ep, t0.Add(60*time.Second))
	if l.Requests != 0 || l.Tokens != 0 || l.Context != 0 || math.Abs(l.Rate-rate/math.E) > 1e-9 ||
		math.Abs(l.Busy-busy*math.Exp(-.2)) > 1e-9 {
		t.Errorf("after release: %+v", l)
	}
	if changes != 3 {
		t.Errorf("%d changes reported", changes)
	}
	var unused Ticket
	if unused.Release() || unused.FirstToken(t0) {
		t.Error("a ticket that was never opened did something")
	}
}

// TestTicketSends checks that tokens to send count as load until the first token shows their
// arrival.
func TestTicketSends(t *testing.T) {
	p := newPool(1)
	ep, b := p.Snapshot().Endpoints[0], p.LoadTracker()
	first, second := Ticket{Helps: true, Sends: 70}, Ticket{Helps: true, Sends: 5}
	b.Open(&first, ep, Work{Input: 100, New: 40}, t0)
	b.Open(&second, ep, Work{Input: 10, New: 10}, t0)
	f := func(want int64) {
		t.Helper()
		if got := b.Load(ep, t0).Moving; got != want {
			t.Errorf("%d tokens to send, want %d", got, want)
		}
	}
	f(75)
	first.FirstToken(t0)
	f(5)
	first.Release()
	second.Release()
	f(0)
}

// TestRenew checks that a new engine incarnation has no in-flight load, even if requests of the
// previous one still end, and that learned constants and gauges remain.
func TestRenew(t *testing.T) {
	now := t0
	p := NewPool(PoolOptions{Now: func() time.Time { return now }})
	p.Set(specs(2))
	var told []Change
	p.Subscribe(func(c Change) { told = append(told, c) })
	ep, b := p.Snapshot().Endpoints[1], p.LoadTracker()
	ep.SetGauges(Gauges{At: t0, Values: gauge.Values{Waiting: 3}})
	ep.SetDown(true)
	var old, fresh Ticket
	b.Open(&old, ep, Work{Input: 10, New: 10}, t0)
	b.SetRemote(ep, Load{Requests: 5})
	p.Renew(ep)
	next := p.Snapshot().Endpoints[1]
	if next == ep || next.ID != ep.ID || next.Down() || next.Gauges().Waiting != 3 || next.counters != ep.counters {
		t.Fatalf("%+v after %+v", next, ep)
	}
	if c := told[len(told)-1]; len(c.Restarted) != 1 || c.Restarted[0] != next || c.Changed[0] != next || c.Snapshot != p.Snapshot() || len(c.Removed) > 0 {
		t.Errorf("reported %+v", c)
	}
	b.Open(&fresh, next, Work{Input: 20, New: 20}, t0)
	old.FirstToken(t0)
	old.Release()
	if l := b.Load(next, t0); l.Requests != 1 || l.Prefill != 20 {
		t.Errorf("in flight: %+v", l)
	}
	p.Renew(ep) // a second report of the same restart
	if p.Snapshot().Endpoints[1] != next {
		t.Error("one restart made two lives")
	}
	now = now.Add(renewAfter)
	p.Renew(ep)
	if l := b.Load(p.Snapshot().Endpoints[1], t0); l.Requests != 0 {
		t.Errorf("in flight after the next restart: %+v", l)
	}
	p.Set(specs(1))
	p.Renew(ep) // it has left
	if len(p.Snapshot().Endpoints) != 1 {
		t.Error("an endpoint that left is back")
	}
}

func TestRemoteLoad(t *testing.T) {
	p := newPool(1)
	ep, b := p.Snapshot().Endpoints[0], p.LoadTracker()
	var k Ticket
	b.Open(&k, ep, Work{Input: 10, New: 10}, t0)
	b.SetRemote(ep, Load{Requests: 3, Waiting: 2, Prefill: 500, Pairs: 9, Tokens: 700, Context: 50, Rate: 2, Busy: .5, LastFirst: t0.Add(time.Second).UnixNano()})
	want := Load{Requests: 4, Waiting: 3, Prefill: 510, Pairs: 59, Tokens: 710, Context: 50, Rate: 2 + 1.0/60,
		Busy: .5 + PriorCost.Prefill(Work{Input: 10, New: 10})/300, LastFirst: t0.Add(time.Second).UnixNano()}
	if diff := cmp.Diff(want, b.Load(ep, t0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b.SetRemote(ep, Load{})
	if l := b.Remote(ep); l != (Load{}) {
		t.Errorf("remote part stays: %+v", l)
	}
}

// TestBookLaw compares the load tracker with a sum over open tickets.
func TestBookLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPool(2)
		b := p.LoadTracker()
		var open []*Ticket
		sum := func(ep *Endpoint) (want Load) {
			for _, k := range open {
				if k.ep != ep {
					continue
				}
				want.Requests++
				want.Tokens += int64(k.work.Input) + k.out
				if k.state == ticketWaiting {
					want.Waiting++
					want.Prefill += int64(k.work.New)
					want.Pairs += math.Trunc(k.work.Pairs())
				} else {
					want.Context += int64(k.work.Input) + k.out
				}
			}
			return want
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			at := rapid.IntRange(-1, len(open)-1).Draw(t, "which")
			if at < 0 {
				in := rapid.IntRange(-5, 5000).Draw(t, "input")
				k := new(Ticket)
				b.Open(k, p.Snapshot().Endpoints[rapid.IntRange(0, 1).Draw(t, "ep")], Work{in, rapid.IntRange(-5, 6000).Draw(t, "new")}, t0)
				open = append(open, k)
				continue
			}
			switch rapid.IntRange(0, 2).Draw(t, "do") {
			case 0:
				open[at].FirstToken(t0)
			case 1:
				open[at].Generated(rapid.IntRange(-1, 9).Draw(t, "n"))
			default:
				open[at].Release()
				open = append(open[:at], open[at+1:]...)
			}
			for _, ep := range p.Snapshot().Endpoints {
				got := b.Local(ep, t0)
				got.Rate, got.Busy, got.RatesAt, got.LastFirst = 0, 0, 0, 0
				if diff := cmp.Diff(sum(ep), got); diff != "" {
					t.Fatalf("-want +got:\n%s", diff)
				}
			}
		}
	})
}

// TestRatesFade checks that rates with a time decay from that time on, and so does their sum.
func TestRatesFade(t *testing.T) {
	ns := func(s float64) int64 { return t0.UnixNano() + int64(s*1e9) }
	old, young := Load{Rate: 1, Busy: .5, RatesAt: ns(-60)}, Load{Rate: 2, Busy: .25, RatesAt: ns(-30)}
	p := newPool(1)
	ep, b := p.Snapshot().Endpoints[0], p.LoadTracker()
	f := func(now, wantRate, wantBusy float64) {
		t.Helper()
		got := b.Load(ep, t0.Add(time.Duration(now*1e9)))
		if math.Abs(got.Rate-wantRate) > 1e-9 || math.Abs(got.Busy-wantBusy) > 1e-9 {
			t.Errorf("at %v s: rate %v, busy %v, want %v, %v", now, got.Rate, got.Busy, wantRate, wantBusy)
		}
	}
	for _, sum := range []Load{old.Add(young), young.Add(old), (Load{}).Add(old).Add(young)} {
		b.SetRemote(ep, sum)
		f(0, math.Exp(-1)+2*math.Exp(-.5), .5*math.Exp(-.2)+.25*math.Exp(-.1))
		f(300, math.Exp(-6)+2*math.Exp(-5.5), .5*math.Exp(-1.2)+.25*math.Exp(-1.1))
	}
	b.SetRemote(ep, Load{Rate: 1, Busy: .5}) // without a date
	f(600, 1, .5)
}

func TestBookConcurrent(t *testing.T) {
	p := newPool(1)
	ep, b := p.Snapshot().Endpoints[0], p.LoadTracker()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				var k Ticket
				b.Open(&k, ep, Work{i, i / 2}, t0)
				if i%2 == 0 {
					k.FirstToken(t0)
					k.Generated(3)
				}
				wg.Go(func() { k.Release() })
				k.Release()
			}
		})
	}
	wg.Wait()
	l := b.Local(ep, t0)
	l.Rate, l.Busy, l.RatesAt, l.LastFirst = 0, 0, 0, 0
	if l != (Load{}) {
		t.Errorf("left in the book: %+v", l)
	}
}

// TestLateReport checks that a report loses the work that the engine has done during its delay, of
// the whole queue, and that reports without a delay or with a wrong clock stay as they are.
func TestLateReport(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name    string
		delay   time.Duration
		local   bool
		prefill int64
		waiting int64
	}{
		{"none", 50 * time.Millisecond, false, 20_000, 2},
		{"a quarter of the queue", 250 * time.Millisecond, false, 15_000, 2},
		{"the same with as much local work ahead", 250 * time.Millisecond, true, 17_500, 2},
		{"all of the queue", 2 * time.Second, false, 0, 0},
		{"a wrong clock", time.Hour, false, 20_000, 2},
	} {
		p := NewPool(PoolOptions{Now: func() time.Time { return now }})
		p.Set(specs(1))
		ep := p.Snapshot().Endpoints[0]
		if c.local {
			p.LoadTracker().Open(new(Ticket), ep, Work{Input: 20_000, New: 20_000}, now)
			ep.book.local.pairs.Store(0)
		}
		p.LoadTracker().SetRemote(ep, Load{Requests: 2, Waiting: 2, Prefill: 20_000, Tokens: 20_000, RatesAt: now.Add(-c.delay).UnixNano()})
		l := p.LoadTracker().Remote(ep)
		if l.Prefill != c.prefill || l.Waiting != c.waiting {
			t.Errorf("%s: %d requests with %d tokens wait, want %d with %d", c.name, l.Waiting, l.Prefill, c.waiting, c.prefill)
		}
		if want := (2 - c.waiting) * 10_000; l.Context != want {
			t.Errorf("%s: context of %d tokens, want %d", c.name, l.Context, want)
		}
	}
}
