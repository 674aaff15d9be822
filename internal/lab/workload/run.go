package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrOptions is returned for invalid options.
var ErrOptions = errors.New("workload: bad options")

// Options describe a run.
type Options struct {
	Source *Source
	Client *Client
	Ideal  *Ideal // nil: no ideal ratio

	// Users play one session after the other and wait for answers (closed loop). With Rate,
	// sessions start at that many per second independent of answers (open loop).
	Users int
	Rate  float64

	Requests int           // limit of requests; 0: none
	Sessions int           // limit of sessions; 0: none
	First    int           // number of the first session
	Timeout  time.Duration // of one request; 0: none

	ThinkScale float64 // factor on think times; default 1
	// AbortShare is the share of requests that the client cancels, after an exponential time with
	// mean AbortAfter (default 100 ms).
	AbortShare float64
	AbortAfter time.Duration
	Seed       uint64 // of arrivals and aborts

	Backoff time.Duration                  // pause of a user after a failed request; 0: none
	Ended   func(at time.Time, o *Outcome) // called concurrently at the end of every request; may be nil
}

// Runner is a running workload. Its Recorder may be read at any time.
type Runner struct {
	Recorder
	opt  Options
	sent atomic.Int64
	next atomic.Int64
	wg   sync.WaitGroup
	stop context.CancelFunc
	drop context.CancelFunc
}

// Start starts a run. It ends at its limit, or with Stop.
func Start(o Options) (*Runner, error) {
	if o.Source == nil || o.Client == nil || (o.Users <= 0) == (o.Rate <= 0) {
		return nil, fmt.Errorf("%w: a source, a client, and users or a rate are needed", ErrOptions)
	}
	if o.ThinkScale == 0 {
		o.ThinkScale = 1
	}
	if o.AbortAfter == 0 {
		o.AbortAfter = 100 * time.Millisecond
	}
	r := &Runner{opt: o}
	r.next.Store(int64(o.First))
	playing, stop := context.WithCancel(context.Background())
	asking, drop := context.WithCancel(context.Background())
	r.stop, r.drop = stop, drop
	if o.Rate > 0 {
		r.wg.Go(func() { r.arrivals(playing, asking) })
		return r, nil
	}
	for u := range o.Users {
		r.wg.Go(func() {
			rng := rand.New(rand.NewPCG(o.Seed, uint64(u)))
			for i, ok := r.claim(); ok && playing.Err() == nil; i, ok = r.claim() {
				if !r.play(playing, asking, i, rng) {
					sleep(playing, r.opt.Backoff)
				}
			}
		})
	}
	return r, nil
}

// Wait waits until the run has ended.
func (r *Runner) Wait() { r.wg.Wait() }

// Stop ends the run. It sends no more requests, waits for open ones until ctx ends, and then
// cancels them. It returns when all have ended.
func (r *Runner) Stop(ctx context.Context) {
	r.stop()
	ended := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		r.drop()
		<-ended
	}
	r.drop()
}

// claim returns the number of the next session.
func (r *Runner) claim() (int, bool) {
	i := int(r.next.Add(1) - 1)
	return i, r.opt.Sessions == 0 || i < r.opt.First+r.opt.Sessions
}

// arrivals starts sessions as a Poisson process.
func (r *Runner) arrivals(playing, asking context.Context) {
	rng := rand.New(rand.NewPCG(r.opt.Seed, 0xa221))
	at := time.Now()
	for i, ok := r.claim(); ok; i, ok = r.claim() {
		at = at.Add(time.Duration(rng.ExpFloat64() / r.opt.Rate * float64(time.Second)))
		if !sleep(playing, time.Until(at)) || r.spent() {
			return
		}
		own := rand.New(rand.NewPCG(r.opt.Seed, uint64(i)))
		r.wg.Go(func() { r.play(playing, asking, i, own) })
	}
}

// spent reports whether the request limit is reached.
func (r *Runner) spent() bool {
	return r.opt.Requests > 0 && r.sent.Load() >= int64(r.opt.Requests)
}

// play plays session i to its end. A failed or aborted turn ends it; ok is false then.
func (r *Runner) play(playing, asking context.Context, i int, rng *rand.Rand) (ok bool) {
	s := r.opt.Source.Session(i)
	for t, more := s.Next(""); more; {
		if n := r.sent.Add(1); playing.Err() != nil || r.opt.Requests > 0 && n > int64(r.opt.Requests) {
			r.stop()
			return true
		}
		o := r.ask(asking, t, rng)
		if o.Err != nil {
			return false
		}
		think := t.Think
		if t, more = s.Next(o.Text); more && !sleep(playing, time.Duration(float64(think)*r.opt.ThinkScale)) {
			return true
		}
	}
	return true
}

// ask sends one turn and records its result.
func (r *Runner) ask(ctx context.Context, t *Turn, rng *rand.Rand) *Outcome {
	cancel := func() {}
	switch {
	case rng.Float64() < r.opt.AbortShare:
		var abort context.CancelFunc
		ctx, abort = context.WithCancel(ctx)
		timer := time.AfterFunc(time.Duration(rng.ExpFloat64()*float64(r.opt.AbortAfter)), abort)
		cancel = func() { timer.Stop(); abort() }
	case r.opt.Timeout > 0:
		ctx, cancel = context.WithTimeout(ctx, r.opt.Timeout)
	}
	defer cancel()
	var asked, hits int
	var prompt []byte
	if r.opt.Ideal != nil {
		prompt = t.Prompt(nil)
		asked, hits = r.opt.Ideal.Request(prompt)
	}
	cohort := r.begin()
	o := r.opt.Client.Do(ctx, t)
	r.end(o, cohort, asked, hits)
	if r.opt.Ended != nil {
		r.opt.Ended(time.Now(), o)
	}
	if r.opt.Ideal != nil && o.Err == nil {
		r.opt.Ideal.Learn(prompt, o.Text)
	}
	return o
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
