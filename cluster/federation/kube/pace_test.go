package kube

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// TestPace tracks one object through all events.
func TestPace(t *testing.T) {
	o := &Options{Pace: 10 * time.Second, Stagger: 3 * time.Second}
	var p pace
	at := func(what string, turn int, now, want time.Duration) {
		t.Helper()
		if got := p.due(what, turn, epoch.Add(now), o).Sub(epoch); got != want {
			t.Errorf("at %v: %q is due at %v, want %v", now, what, got, want)
		}
	}
	done := func(what string, err error, wrote bool, now time.Duration, want bool) {
		t.Helper()
		if got := p.done(what, err, wrote, epoch.Add(now)); got != want {
			t.Errorf("at %v: %q reasserted = %t", now, what, got)
		}
	}
	const s = time.Second
	// Turns: the first immediately, others if it still differs.
	at("x", 0, 1*s, 1*s)
	at("x", 2, 5*s, 7*s)
	p.settled(epoch.Add(6*s), o)
	at("x", 2, 20*s, 26*s)
	done("x", nil, true, 26*s, false)
	// Overwritten: at doubling delays, up to a limit.
	at("x", 0, 27*s, 36*s)
	done("x", nil, true, 36*s, true)
	at("x", 0, 37*s, 56*s)
	done("x", nil, true, 56*s, true)
	at("x", 0, 57*s, 96*s)
	p.again = 30
	at("x", 0, 57*s, 656*s)
	// Different content does not wait for that.
	at("y", 0, 57*s, 57*s)
	// After content has lasted for long, the next delay is short again.
	p.settled(epoch.Add(56*s+time.Hour), o)
	if p.again != 0 {
		t.Error("entry still counts as overwritten")
	}
	// Failures.
	done("y", errors.New("away"), false, 100*s, false)
	at("y", 0, 100*s, 101*s)
	for range 20 {
		done("y", errors.New("away"), false, 200*s, false)
	}
	at("y", 0, 200*s, 230*s)
	done("y", nil, false, 230*s, false) // it already matched
	if !p.retry.IsZero() || p.err != nil {
		t.Error("failure count was not reset by a success")
	}
}

// TestMissingRight: a missing permission is reported to other clusters once writes have been denied
// for a while. An API server that has just started denies requests that it will allow.
func TestMissingRight(t *testing.T) {
	o, denied := &Options{Grace: 10 * time.Second}, &kubeapi.Error{Code: http.StatusForbidden}
	var p pace
	for _, step := range []struct {
		at   time.Duration
		err  error
		want string
	}{
		{0, denied, ""}, {9 * time.Second, denied, ""}, {9500 * time.Millisecond, nil, ""},
		{10 * time.Second, denied, ""}, {19 * time.Second, denied, ""}, {20 * time.Second, denied, problemForbidden},
	} {
		if got := p.problem(step.err, epoch.Add(step.at), o); got != step.want {
			t.Errorf("at %v with %v: problem %q, want %q", step.at, step.err, got, step.want)
		}
	}
}
