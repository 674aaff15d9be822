package core

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// large is the cache of a whole engine.
var large = engine.Config{Blocks: engine.KVTokens70B / 16}

func namesFor(tokens int) (h []engine.Hash) {
	for i := range tokens / 16 {
		h = append(h, engine.Hash(i+1))
	}
	return h
}

// TestRealTime checks that tokens arrive at the model's times, to the nanosecond, at any speed.
func TestRealTime(t *testing.T) {
	for _, speed := range []float64{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(Options{Engine: large, Speed: speed})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			begun := time.Now()
			j := NewJob(engine.Request{Prompt: 10_000, Output: 3, Blocks: namesFor(10_000)}, false)
			c.Submit(j)
			ms := func(a, b, e, s, d float64) time.Duration { // in the model's terms
				return time.Duration(18e6 + 71e3*b + 1.66*e + 50e3*s + 35*d + a)
			}
			steps := []time.Duration{
				ms(0, 8192, 8192*8192/2, 1, 0),
				ms(0, 1808, 1808*(8192+1808/2), 1, 0),
				ms(0, 0, 0, 1, 10_001),
				ms(0, 0, 0, 1, 10_002),
			}
			var at time.Duration
			for i, step := range steps {
				at += time.Duration(float64(step) / speed)
				if i == 0 {
					continue // the first chunk gives no token
				}
				<-j.Notify
				if got := time.Since(begun); (got - at).Abs() > 100 {
					t.Errorf("speed %v: token %d after %v, want %v", speed, i, got, at)
				}
				if tokens, cached, _, err := j.State(); tokens != i || cached != 0 || err != nil {
					t.Errorf("state %d %d %v", tokens, cached, err)
				}
			}
		})
	}
}

// TestLateSubmission: a request that arrives within a step begins with the
// next one.
func TestLateSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Engine: engine.Config{Blocks: 100, Model: engine.Model{A: 100}}, Speed: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		begun := time.Now()
		first := NewJob(engine.Request{Prompt: 10, Output: 5}, false)
		c.Submit(first)
		time.Sleep(130 * time.Millisecond)
		second := NewJob(engine.Request{Prompt: 10, Output: 1}, false)
		c.Submit(second)
		<-second.Notify
		if got := time.Since(begun); got != 300*time.Millisecond {
			t.Errorf("first token of the late one after %v, want 300ms", got)
		}
		c.Abort(first)
		synctest.Wait()
		time.Sleep(time.Second)
		if _, _, over, err := first.State(); !over || !errors.Is(err, ErrAborted) {
			t.Errorf("the aborted job: over %v, %v", over, err)
		}
	})
}

// TestCloseFailsJobs: no job is left waiting when the core stops.
func TestCloseFailsJobs(t *testing.T) {
	c, err := New(Options{Engine: engine.Config{Blocks: 100}, Speed: 1})
	if err != nil {
		t.Fatal(err)
	}
	jobs := []*Job{NewJob(engine.Request{Prompt: 10, Output: 500}, false), NewJob(engine.Request{Prompt: 10, Output: 1}, false)}
	c.Submit(jobs[0])
	c.Close()
	c.Submit(jobs[1])
	for _, j := range jobs {
		if _, _, over, err := j.State(); !over || !errors.Is(err, ErrStopped) {
			t.Errorf("over %v, %v", over, err)
		}
	}
	if c.InFlight() != 0 {
		t.Errorf("%d in flight", c.InFlight())
	}
}
