package sim

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

func namesFor(tokens int) (h []engine.Hash) {
	for i := range tokens / 16 {
		h = append(h, engine.Hash(i+1))
	}
	return h
}

// TestRealTime: tokens come at the times that the model gives, to the
// nanosecond, at any speed.
func TestRealTime(t *testing.T) {
	for _, speed := range []float64{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			o, err := Options{Speed: speed}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			c, err := newCore(0, &o, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			begun := time.Now()
			j := newJob(engine.Request{Prompt: 10_000, Output: 3, Blocks: namesFor(10_000)}, false)
			c.submit(j)
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
				<-j.notify
				if got := time.Since(begun); (got - at).Abs() > 100 {
					t.Errorf("speed %v: token %d after %v, want %v", speed, i, got, at)
				}
				if tokens, cached, _, err := j.state(); tokens != i || cached != 0 || err != nil {
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
		o, err := Options{Core: engine.Config{Blocks: 100, Model: engine.Model{A: 100}}}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		c, err := newCore(0, &o, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		begun := time.Now()
		first := newJob(engine.Request{Prompt: 10, Output: 5}, false)
		c.submit(first)
		time.Sleep(130 * time.Millisecond)
		second := newJob(engine.Request{Prompt: 10, Output: 1}, false)
		c.submit(second)
		<-second.notify
		if got := time.Since(begun); got != 300*time.Millisecond {
			t.Errorf("first token of the late one after %v, want 300ms", got)
		}
		c.abort(first)
		synctest.Wait()
		time.Sleep(time.Second)
		if _, _, over, err := first.state(); !over || !errors.Is(err, errAborted) {
			t.Errorf("the aborted job: over %v, %v", over, err)
		}
	})
}

// TestByPriority: the priority in bodies orders what waits.
func TestByPriority(t *testing.T) {
	core := smallCore()
	core.ByPriority = true
	e := open(t, Options{Core: core})
	p, prompts, err := e.parse([]byte(`{"model":"`+vocab.Name+`","prompt":"x","priority":-12}`), false)
	if err != nil {
		t.Fatal(err)
	}
	if j := e.job(&sequence{prompt: &prompts[0]}, p); j.req.Priority != -12 {
		t.Errorf("priority %d", j.req.Priority)
	}
	if _, _, err := e.parse([]byte(`{"model":"`+vocab.Name+`","prompt":"x","priority":"high"}`), false); err == nil {
		t.Error("a priority in words was taken")
	}
}

// TestCloseFailsJobs: no job is left waiting when the core stops.
func TestCloseFailsJobs(t *testing.T) {
	o, err := Options{Core: smallCore()}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCore(0, &o, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	jobs := []*job{newJob(engine.Request{Prompt: 10, Output: 500}, false), newJob(engine.Request{Prompt: 10, Output: 1}, false)}
	c.submit(jobs[0])
	c.close()
	c.submit(jobs[1])
	for _, j := range jobs {
		if _, _, over, err := j.state(); !over || !errors.Is(err, errStopped) {
			t.Errorf("over %v, %v", over, err)
		}
	}
	if c.inFlight() != 0 {
		t.Errorf("%d in flight", c.inFlight())
	}
}
