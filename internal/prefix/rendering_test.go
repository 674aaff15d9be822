package prefix

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestUnlike: an engine's rendering of fixed chats counts for the matching prompts until enough
// answers were compared, or until the rendering changes.
func TestUnlike(t *testing.T) {
	hasher := block.NewHasher(block.Seed{})
	m := New(Options{Index: indexer.New(indexer.Options{Hasher: hasher}), Approx: approx.New(approx.Options{Hasher: hasher})})
	p := endpoint.NewPool(endpoint.PoolOptions{})
	p.Set(fleetOf(1))
	ep := p.Snapshot().Endpoints[0]
	state := func() string {
		var out []string
		for _, v := range m.Verdicts(ep) {
			out = append(out, strings.TrimSpace(fmt.Sprintln(v.Prompts, v.State, v.Uses, v.Reason)))
		}
		s, _ := m.State(ep, knowledge.Exact)
		return strings.Join(append(out, s.String()), "; ")
	}
	expect := func(what, want string) {
		t.Helper()
		if got := state(); got != want {
			t.Errorf("%s:\n%s, want\n%s", what, got, want)
		}
	}
	guess := func(kind request.Kind, tools bool) bool {
		r := &request.Request{Kind: kind}
		if tools {
			r.Prompt.Tools = request.Span{1, 2}
		}
		return m.trialsOf(r).of(ep.ID)&flagGuess != 0
	}
	expect("nothing known", "exact")
	m.NoteRenderingDiffs(ep, "", "", "with tools they differ")
	expect("tools", "chats with tools mismatched sent with tools they differ; exact events; mismatched")
	if guess(request.KindChat, false) || !guess(request.KindChat, true) || !guess(request.KindMessages, true) || guess(request.KindCompletions, false) {
		t.Error("chats with tools, and they alone, go by what was sent")
	}
	m.NoteRenderingDiffs(ep, "", "they differ", "")
	expect("chats", "mismatched sent they differ; mismatched")
	if !guess(request.KindChat, false) || !guess(request.KindResponses, true) || guess(request.KindCompletions, false) {
		t.Error("all that a template builds, and it alone, goes by what was sent")
	}
	m.NoteRenderingDiffs(ep, "", "", "")
	expect("mended", "exact")
	if guess(request.KindChat, false) {
		t.Error("chats still go by what was sent")
	}

	// Answers have the last word.
	m.NoteRenderingDiffs(ep, "", "they differ", "")
	chat := &request.Request{Kind: request.KindChat, InputTokens: 1000}
	for i := range enough {
		n := 512 + 16*i
		m.Finished(chat, ep, cycle.PrefixMatch{Looked: true, Precise: int32(n), Approximate: int32(n)}, request.Outcome{
			Status: 200, Complete: true, Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 1000, CachedTokens: n},
		})
	}
	expect("predicted cache hits match the engine's answers again", "exact events; exact")
	if guess(request.KindChat, false) {
		t.Error("chats go by what was sent, although predicted cache hits match the engine's answers again")
	}
	m.Left([]*endpoint.Endpoint{ep})
	expect("left", "exact")
}
