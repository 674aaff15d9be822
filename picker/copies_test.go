package picker

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestEndHasEveryField: the counters of ended requests receive every field of an outcome.
func TestEndHasEveryField(t *testing.T) {
	r := chatRequest("x", 100)
	f := &flight{ep: newPool(1).Snapshot().Endpoints[0], request: r, firstAt: t0.Add(time.Second)}
	f.queued.At, f.evidence.cause = t0, 1
	var o request.Outcome
	fields.Fill(&o)
	o.Unseen = false
	end := f.outcome(&o)
	for _, name := range fields.Unset(*end, "Endpoint") {
		t.Errorf("%s is not set", name)
	}
	if end.Endpoint != f.ep || end.PromptTokens != o.Usage.PromptTokens || end.CachedTokens != o.Usage.CachedTokens {
		t.Errorf("outcome() = %+v of %+v, want its endpoint and tokens", end, o)
	}
}

// randoms is a scorer that keeps the first random number of each decision.
type randoms struct{ seen *[]uint64 }

func (r randoms) Score(c *cycle.Cycle, _ []float64) { *r.seen = append(*r.seen, c.Uint64()) }

// TestDecisionsHaveOwnRandomNumbers: each decision has other random numbers. A scheduler with
// the same seed has the same ones.
func TestDecisionsHaveOwnRandomNumbers(t *testing.T) {
	const decisions = 4
	var all [2][]uint64
	for i := range all {
		profile := testProfile()
		profile.Scorers = append(profile.Scorers, cycle.ProfileScorer{Name: "random", Scorer: randoms{&all[i]}})
		s := newScheduler(t, Options{Pool: newPool(2), Rules: &Rules{Handler: single{profile}}})
		for range decisions {
			d, err := s.Choose(context.Background(), chatRequest("x", 100))
			if err != nil {
				t.Fatal(err)
			}
			d.Done(request.Outcome{})
		}
	}
	different := map[uint64]bool{}
	for k, n := range all[0] {
		different[n] = true
		if n != all[1][k] {
			t.Errorf("decision %d has the random number %d, and %d with the same seed", k, n, all[1][k])
		}
	}
	if len(different) != decisions {
		t.Errorf("%d decisions have %d different random numbers, want %d", decisions, len(different), decisions)
	}
}

// usages keeps how the last request of an endpoint ended.
type usages struct {
	fakeMatcher
	last request.Outcome
}

func (m *usages) Finished(_ *request.Request, _ *endpoint.Endpoint, _ cycle.PrefixMatch, o request.Outcome) {
	m.last = o
}

// fetches is a handler whose decisions fetch blocks from another endpoint.
type fetches struct {
	single
	tokens int32
}

func (h fetches) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Fetched = h.tokens
	return h.single.Handle(c, plan)
}

// TestFetchedBlocksAreNoCacheEvidence: engines count fetched blocks as cached. The matcher must not take
// this for a hit in the engine's own cache.
func TestFetchedBlocksAreNoCacheEvidence(t *testing.T) {
	for tokens, want := range map[int32]request.Usage{
		0:  {Seen: true, CachedSeen: true, CachedTokens: 90},
		90: {Seen: true, Transferred: true, CachedTokens: 90},
	} {
		m := &usages{}
		s := newScheduler(t, Options{Pool: newPool(2), Matcher: m, Rules: &Rules{Handler: fetches{single{testProfile()}, tokens}}})
		d, err := s.Choose(context.Background(), chatRequest("x", 100))
		if err != nil {
			t.Fatal(err)
		}
		d.Done(request.Outcome{At: t0, Status: 200, Complete: true, Usage: request.Usage{Seen: true, CachedSeen: true, CachedTokens: 90}})
		if m.last.Usage != want {
			t.Errorf("%d fetched tokens: the matcher receives %+v, want %+v", tokens, m.last.Usage, want)
		}
	}
}

// TestFailedWarmUpCountsAgainstPrompt: a prompt whose warm-up fails is failing, so that it gets no
// further warm-up. An engine without capacity is no evidence.
func TestFailedWarmUpCountsAgainstPrompt(t *testing.T) {
	for status, failing := range map[int]bool{0: true, 200: false, 429: false, 500: true, 503: false} {
		profile := testProfile()
		profile.Scorers = append(profile.Scorers, cycle.ProfileScorer{Name: "warms", Scorer: warms{}})
		var ends []func(time.Time, int)
		s := newScheduler(t, Options{
			Pool: newPool(2), Rules: &Rules{Handler: single{profile}},
			WarmUps: WarmUps{
				Takes: func(*request.Request) bool { return true },
				Send:  func(_ *WarmUp, ended func(time.Time, int)) bool { ends = append(ends, ended); return true },
			},
		})
		r := chatRequest("x", 1000)
		r.Body = []byte("prompt")
		place := func() {
			d, err := s.Choose(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Done(request.Outcome{At: t0, Status: 200, Complete: true})
		}
		place()
		if len(ends) != 1 {
			t.Fatalf("%d warm-ups, want 1", len(ends))
		}
		ends[0](t0, status)
		place()
		if got := len(ends) == 1; got != failing {
			t.Errorf("status %d: %d warm-ups after the second request, want a second one: %v", status, len(ends), !failing)
		}
	}
}
