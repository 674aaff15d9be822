package prefix

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// silent is a matcher, and an engine that reports its cache hits only on its metrics page.
type silent struct {
	*Matcher
	eps  []*endpoint.Endpoint
	now  time.Time
	ask  *request.Request
	page Reused
}

func newSilent() *silent {
	s := &silent{now: time.Now(), page: Reused{Counts: true}}
	h := block.NewHasher(block.Seed{1})
	sent := approx.New(approx.Options{Hasher: h})
	s.Matcher = New(Options{
		Index: indexer.New(indexer.Options{Hasher: h}), Approx: sent, Now: func() time.Time { return s.now },
		Read: func(block.EndpointID) knowledge.State { return knowledge.Approximate },
	})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(1))
	s.eps = pool.Snapshot().Endpoints
	s.eps[0].SetGauges(endpoint.Gauges{At: s.now, Engine: endpoint.EngineVLLM, BlockSize: 16})
	text := bytes.Repeat([]byte("0123456789abcdef"), 1024) // 16 KiB, 4,096 tokens
	s.ask = &request.Request{InputTokens: len(text) / 4, PromptBytes: len(text), Chunks: block.Query{Root: 1, Bytes: text}}
	s.ask.ChunkKeys = sent.Keys(s.ask.Chunks, nil)
	return s
}

// serve completes n requests, one per second. The engine reuses the given number of tokens of each,
// and its page is read after each. It returns the prediction for the next request.
func (s *silent) serve(n int, reused float64) int32 {
	held := make([]cycle.PrefixMatch, 1)
	for range n {
		s.Match(context.Background(), s.ask, s.eps, held)
		s.Chosen(s.ask, s.eps[0])
		s.page.Tokens += reused
		s.now = s.now.Add(time.Second)
		s.Finished(s.ask, s.eps[0], held[0], request.Outcome{Status: 200, Complete: true})
		s.Counted(s.eps[0], s.page)
	}
	s.Match(context.Background(), s.ask, s.eps, held)
	return held[0].Run.Total()
}

const wholePrompt = 4080 // tokens that an engine can reuse

// TestReuseIsCounted: an engine's answers do not report cached tokens. While its page shows no
// reuse, no cached tokens are predicted; when the page shows reuse again, they are.
func TestReuseIsCounted(t *testing.T) {
	s := newSilent()
	s.Counted(s.eps[0], s.page)
	if got := s.serve(4, wholePrompt); got != wholePrompt {
		t.Fatalf("%d tokens are expected of an engine that keeps all", got)
	}
	if got := s.serve(40, 0); got > wholePrompt/20 {
		t.Errorf("%d tokens are expected of an engine that has had none of 40 prompts", got)
	}
	if state, reason := s.State(s.eps[0], knowledge.Approximate); state != knowledge.Approximate || !strings.Contains(reason, "counts 2%") {
		t.Errorf("it is %v: %q", state, reason)
	}
	if got := s.serve(40, wholePrompt/4); got < wholePrompt/5 || got > wholePrompt/3 {
		t.Errorf("%d tokens are expected of an engine that has a quarter of them", got)
	}
	if got := s.serve(60, wholePrompt); got != wholePrompt {
		t.Errorf("%d tokens are expected of an engine that has come to keep all", got)
	}
	if _, reason := s.State(s.eps[0], knowledge.Approximate); reason != "" {
		t.Errorf("still: %q", reason)
	}
}

// TestOthersMayReuse: cache hits of other pickers' requests are evidence for the cache and never
// against it. A restarted or missing counter is no evidence.
func TestOthersMayReuse(t *testing.T) {
	s := newSilent()
	for i, reused := range []float64{10 * wholePrompt, 0.8 * wholePrompt} {
		if got := s.serve(30, reused); got != wholePrompt {
			t.Errorf("%d: %d tokens are expected", i, got)
		}
	}
	for range 30 { // the counter restarts after each request
		s.page.Tokens = 0
		if got := s.serve(1, 0); got != wholePrompt {
			t.Fatalf("%d tokens are expected of an engine whose counts begin anew", got)
		}
		s.page.Tokens = 1
		s.Counted(s.eps[0], s.page)
	}
	s.page = Reused{}
	if got := s.serve(30, 0); got != wholePrompt {
		t.Errorf("%d tokens are expected of an engine that counts nothing", got)
	}
}

// TestCachingIsOff: if an engine reports that its prefix cache is disabled, predictions become zero
// immediately. If the next engine at the address reports an enabled cache, they return.
func TestCachingIsOff(t *testing.T) {
	s := newSilent()
	s.serve(1, 0)
	s.page = Reused{Uncached: true}
	s.Counted(s.eps[0], s.page)
	if got := s.serve(1, 0); got != 0 {
		t.Errorf("%d tokens are expected", got)
	}
	if _, reason := s.State(s.eps[0], knowledge.Approximate); !strings.Contains(reason, "prefix caching is off") {
		t.Errorf("reason %q", reason)
	}
	s.page = Reused{Counts: true}
	if got := s.serve(2, wholePrompt); got != wholePrompt {
		t.Errorf("%d tokens are expected of another engine in its place", got)
	}
	s.Left(s.eps)
	if s.reuses.of(s.eps[0].ID) != nil {
		t.Error("an endpoint that left is remembered")
	}
}

// Answers take precedence over the page: a constant counter does not reduce predictions that
// answers confirm. Once no answers report cached tokens any more, the page counts again.
func TestAnswersOutrankThePage(t *testing.T) {
	s := newSilent()
	answer := func(n int, usage request.Usage) int32 {
		held := make([]cycle.PrefixMatch, 1)
		for range n {
			s.Match(context.Background(), s.ask, s.eps, held)
			s.Chosen(s.ask, s.eps[0])
			s.now = s.now.Add(time.Second)
			s.Finished(s.ask, s.eps[0], held[0], request.Outcome{Status: 200, Complete: true, Usage: usage})
			s.Counted(s.eps[0], s.page) // its counter does not change
		}
		s.Match(context.Background(), s.ask, s.eps, held)
		return held[0].Run.Total()
	}
	confirmed := request.Usage{Seen: true, PromptTokens: 4096, CachedTokens: 4080, CachedSeen: true}
	if got := answer(60, confirmed); got < 4000 {
		t.Errorf("%d tokens predicted where answers report 4080 and the page counts none, want 4080", got)
	}
	if rests := s.Basis(s.eps[0], knowledge.Approximate); !strings.Contains(rests, "its metrics page counts fewer cached tokens") {
		t.Errorf("predicted from %q, want the page named as the one that contradicts", rests)
	}
	s.now = s.now.Add(2 * reuseRecent)
	if got := answer(60, request.Usage{}); got > 1000 {
		t.Errorf("%d tokens predicted where only the page counts, and counts none", got)
	}
}
