package picker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// continuations returns the endpoints named for the continuation of a request's stream.
func continuations(t *testing.T, s *Scheduler, r *request.Request) (named []string, d *request.Decision) {
	t.Helper()
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range d.SetHeaders {
		if h.Name == request.HeaderContinuation {
			named = append(named, strings.Split(h.Value, ",")...)
		}
	}
	return named, d
}

// TestNameContinuations checks which requests get the header with endpoints for their continuation: the
// next ones of the decision.
func TestNameContinuations(t *testing.T) {
	for _, c := range []struct {
		name          string
		continuations int
		stream        bool
		kind          request.Kind
		want          int
	}{
		{"off", 0, true, request.KindChat, 0},
		{"chat", 2, true, request.KindChat, 2},
		{"completions", 1, true, request.KindCompletions, 1},
		{"more than the decision has", 5, true, request.KindChat, 2},
		{"not streamed", 2, false, request.KindChat, 0},
		{"responses", 2, true, request.KindResponses, 0},
	} {
		s := newScheduler(t, Options{Pool: newPool(6), Continuations: c.continuations})
		r := chatRequest("x", 100)
		r.Stream, r.Kind = c.stream, c.kind
		named, d := continuations(t, s, r)
		if len(named) != c.want {
			t.Errorf("%s: %v, want %d endpoints", c.name, named, c.want)
		}
		for i, at := range named {
			if at != d.Endpoints[i+1] {
				t.Errorf("%s: %v, want the endpoints after the first of %v", c.name, named, d.Endpoints)
			}
		}
		d.Done(request.Outcome{At: t0})
	}
}

// TestSuspectsAreNotContinued checks that a prompt that may have ended an engine has no endpoint for a
// continuation.
func TestSuspectsAreNotContinued(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(6), Continuations: 2})
	ep := course(t, s, "killer", []request.Event{{Kind: request.EventHeaders, Status: 500}}, request.Outcome{Status: 500, Complete: true})
	s.prompts.Gone(int(ep.ID), t0.Add(2*time.Second))
	for body, want := range map[string]int{"killer": 0, "bystander": 2} {
		r := chatRequest(body, 100)
		r.Body, r.Stream = []byte(body), true
		named, d := continuations(t, s, r)
		if len(named) != want {
			t.Errorf("%s: %v, want %d endpoints", body, named, want)
		}
		d.Done(request.Outcome{At: t0})
	}
}
