package prefix

import (
	"bytes"
	"fmt"
	"log/slog"
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

// classRig is a fleet whose engines have more of some requests than is expected.
type classRig struct {
	*Matcher
	eps []*endpoint.Endpoint
	now time.Time
	log bytes.Buffer
	n   int
}

func newClassRig(endpoints int) *classRig {
	c := &classRig{now: time.Unix(1_800_000_000, 0)}
	h := block.NewHasher(block.Seed{1})
	c.Matcher = New(Options{
		Index: indexer.New(indexer.Options{Hasher: h}), Approx: approx.New(approx.Options{Hasher: h}), Now: func() time.Time { return c.now },
		Log: slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(endpoints))
	c.eps = pool.Snapshot().Endpoints
	for _, ep := range c.eps {
		ep.SetGauges(endpoint.Gauges{BlockSize: 16})
	}
	return c
}

// serve completes a client's request with 1,600 cached tokens, of which expected were predicted.
func (c *classRig) serve(client string, at, expected int) {
	c.n++
	c.now = c.now.Add(time.Second)
	r := &request.Request{ID: fmt.Sprintf("id-%d", c.n), Kind: request.KindChat, Client: client, InputTokens: 2000}
	h := cycle.PrefixMatch{Looked: true, Precise: int32(expected), Approximate: 1600, LastEvent: 1}
	c.Finished(r, c.eps[at], h, request.Outcome{Status: 200, Complete: true,
		Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 2000, CachedTokens: 1600}})
}

func (c *classRig) flagsOf(client string, at int) flags {
	r := &request.Request{Kind: request.KindChat, Client: client}
	return c.classFlags(c.trialsOf(r), r, c.eps[at].ID)
}

// A kind of request that never matches is named with an example within its first 20 requests.
// Predictions for this kind alone then use sent prompts; the endpoints stay exact.
func TestWrongClassesAreNamed(t *testing.T) {
	for _, share := range []int{2, 5, 50} { // one request in share
		c := newClassRig(4)
		own := 0
		for i := range 4000 {
			if i%share == share-1 && i > 64 {
				c.serve("claude-cli", i/share%4, 0)
				if own++; own == 20 {
					break
				}
			} else {
				c.serve("app", i%4, 1600)
			}
		}
		if c.flagsOf("claude-cli", 0)&flagGuess == 0 || c.flagsOf("app", 0)&flagGuess != 0 {
			t.Errorf("one of %d: what was sent is used for the class: %v, for others: %v", share, c.flagsOf("claude-cli", 0)&flagGuess != 0, c.flagsOf("app", 0)&flagGuess != 0)
		}
		state, reason := c.State(c.eps[1], knowledge.Exact)
		if state != knowledge.Exact || !strings.Contains(reason, "chats of client claude-cli") || !strings.Contains(reason, "request id-") {
			t.Errorf("one of %d: state %s, reason %q, want exact with the class and an example", share, state, reason)
		}
		if got := strings.Count(c.log.String(), "one request class do not match"); got != 1 {
			t.Errorf("one of %d: %d warnings, want 1:\n%s", share, got, c.log.String())
		}
	}
}

// An endpoint whose predictions are wrong for all requests makes no class wrong.
func TestWrongEndpointsMakeNoClassWrong(t *testing.T) {
	for _, right := range []int{0, 64} { // comparisons before the endpoint goes wrong
		c := newClassRig(2)
		for i := range 400 {
			expected := 1600
			if i%2 == 0 && i/2 >= right {
				expected = 0
			}
			c.serve([]string{"app", "claude-cli"}[i/2%2], i%2, expected)
		}
		for _, client := range []string{"app", "claude-cli"} {
			if c.flagsOf(client, 1)&flagGuess != 0 {
				t.Errorf("wrong after %d: requests of %s are expected by what was sent at the endpoint that is right", right, client)
			}
		}
		if state, _ := c.State(c.eps[0], knowledge.Exact); state != knowledge.Mismatched {
			t.Errorf("wrong after %d: the endpoint is %s, want mismatched", right, state)
		}
		if state, reason := c.State(c.eps[1], knowledge.Exact); state != knowledge.Exact || reason != "" {
			t.Errorf("wrong after %d: the other endpoint is %s, %q", right, state, reason)
		}
	}
}
