package picker

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestTries: which requests may be tried a second time when an engine has begun on them.
func TestTries(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(4)})
	f := func(what string, want request.Tries, change func(r *request.Request)) {
		t.Helper()
		r := chatRequest(what, 100)
		r.Body = []byte(what)
		if change != nil {
			change(r)
		}
		d, err := s.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done(request.Outcome{})
		if d.Tries != want {
			t.Errorf("%s: %v, want %v", what, d.Tries, want)
		}
	}
	f("a chat", request.TriesOnce, nil)
	f("a stream", request.TriesOnce, func(r *request.Request) { r.Stream = true })
	f("what an engine may keep", request.TriesSafe, func(r *request.Request) { r.Kind = request.KindResponses })
	f("what nobody knows", request.TriesSafe, func(r *request.Request) { r.Kind = request.KindOther })
	f("what goes on by itself", request.TriesNone, func(r *request.Request) { r.Kind, r.Background = request.KindResponses, true })
	f("what goes on with an answer", request.TriesNone, func(r *request.Request) { r.Kind, r.Previous = request.KindResponses, "resp_1" })
	for i, want := range []request.Tries{request.TriesSafe, request.TriesNone} { // of its next request
		eps := s.opts.Pool.Snapshot().Endpoints
		s.prompts.Failed((&request.Request{Body: []byte("poison")}).PromptKey(), int(eps[i].ID), t0)
		f("poison", want, nil)
	}
	for range 3 {
		s.retries.Add(t0, 0, 1)
	}
	f("beyond the budget", request.TriesSafe, nil)
	s.retries.Add(t0, 1000, 0)
	f("within the budget", request.TriesOnce, nil)
	for _, ep := range s.opts.Pool.Snapshot().Endpoints[1:] {
		ep.Tracker().SetFull(t0, time.Second)
	}
	f("nobody well behind it", request.TriesSafe, nil)
}
