package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// Options of a demo. The default is six engines and three replicas.
type Options struct {
	rig.Options
	Out      io.Writer
	TTY      bool          // redraw in place
	Phase    time.Duration // length of a phase; default 32 s
	Step     time.Duration // length of a step: RunHA, default 6 s; RunQuality, default 24 s; RunSoak, the whole run
	Rate     float64       // RunQuality: sessions per second; RunFaults: requests per second
	Warm     time.Duration // warm-up of RunQuality (default 10 s) and RunFaults (15 s)
	FailOpen bool          // RunFlow: Envoy itself routes requests whose replica dies

	tenants []tenant // of RunFlow
	answers uint64   // RunFlow, RunQuality: each step ends after this many answers, not after a time
}

// Result holds the results of one phase.
type Result struct {
	Requests, Failed   uint64
	PerSecond          float64
	HitRatio, Ideal    float64
	TTFT50, TTFT90     time.Duration
	FailedDuringOutage uint64
	LastError          error // of the failed requests
}

// Chat is the workload: multi-turn chats of many tenants, each with a long system prompt. All
// system prompts together exceed the cache of one engine several times and fit in the caches of
// all.
var Chat = workload.Kind{
	Name: "chat", Shared: 24, Zipf: 1, SharedTokens: 6000, Turns: 5, UserTokens: 80, Spread: .8, Answer: 60, Think: 2 * time.Second,
}

// Users is the number of users who chat.
const Users = 48

// run is a running demo.
type run struct {
	*rig.Rig
	o Options
}

// newRun writes the files of a run into a folder.
func newRun(o Options, dir string) (*run, error) {
	r, err := rig.New(o.Options, dir)
	return &run{Rig: r, o: o}, err
}

// ErrInterrupted is returned by demos whose context ended first.
var ErrInterrupted = errors.New("demo: interrupted; everything that was started has ended")

// StartChats starts the chat workload against a URL.
func StartChats(url string) (*workload.Runner, error) {
	return workload.Start(workload.Options{
		Source: workload.NewSource(Chat, 1, vocab.Name, 0),
		Client: workload.NewClient(url, 2*Users),
		Ideal:  workload.NewIdeal(vocab.New(), rig.BlockSize),
		Users:  Users, ThinkScale: 1, Seed: 1, Timeout: 60 * time.Second,
	})
}

// StopLoad waits for open requests, unless the demo was interrupted.
func StopLoad(ctx context.Context, w *workload.Runner) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	w.Stop(ctx)
}

// ErrEnded is returned if a process ended unexpectedly.
var ErrEnded = errors.New("ended before its time")

// Failures returns the number of failed and wrong answers.
func Failures(t *workload.Totals) uint64 { return t.Errors + t.Wrong }

// Short formats a duration in few characters.
func Short(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
