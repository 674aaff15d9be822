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

// Options of a demo. Of the parts, six engines and three replicas are the default.
type Options struct {
	rig.Options
	Out      io.Writer
	TTY      bool          // redraw in place
	Phase    time.Duration // of each phase; default 32 s
	Step     time.Duration // of RunHA, default 6 s; of RunQuality, default 24 s; of RunSoak the length
	Rate     float64       // of RunQuality: sessions per second; of RunFaults: requests
	Warm     time.Duration // of RunQuality and RunFaults: before the measured part; default 10 s, 15 s
	FailOpen bool          // of RunFlow: Envoy places requests by itself that wait at a replica that dies

	tenants []tenant // of RunFlow
	answers uint64   // of RunFlow and RunQuality: each step lasts for so many, whatever time that takes
}

// Result is one phase.
type Result struct {
	Requests, Failed   uint64
	PerSecond          float64
	HitRatio, Ideal    float64
	TTFT50, TTFT90     time.Duration
	FailedDuringOutage uint64
	LastError          error // of the failed requests
}

// Chat is the workload: multi-turn chats of many tenants, each with a long
// system prompt. All of these together are several times what one engine's
// cache holds, and fit the caches of all engines.
var Chat = workload.Kind{
	Name: "chat", Shared: 24, Zipf: 1, SharedTokens: 6000, Turns: 5, UserTokens: 80, Spread: .8, Answer: 60, Think: 2 * time.Second,
}

// Users is how many users the chats have.
const Users = 48

// run is one demo under way.
type run struct {
	*rig.Rig
	o Options
}

// newRun writes what a run needs into a folder.
func newRun(o Options, dir string) (*run, error) {
	r, err := rig.New(o.Options, dir)
	return &run{Rig: r, o: o}, err
}

// ErrInterrupted is returned by demos when its context ended first.
var ErrInterrupted = errors.New("demo: interrupted; everything that was started has ended")

// StartChats starts the chats of a demo at a URL.
func StartChats(url string) (*workload.Runner, error) {
	return workload.Start(workload.Options{
		Source: workload.NewSource(Chat, 1, vocab.Name, 0),
		Client: workload.NewClient(url, 2*Users),
		Ideal:  workload.NewIdeal(vocab.New(), rig.BlockSize),
		Users:  Users, ThinkScale: 1, Seed: 1, Timeout: 60 * time.Second,
	})
}

// StopLoad lets open requests end, unless the demo was interrupted.
func StopLoad(ctx context.Context, w *workload.Runner) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	w.Stop(ctx)
}

// ErrEnded says that a part ended before its time.
var ErrEnded = errors.New("ended before its time")

// Failures counts the requests that were not answered, or wrongly.
func Failures(t *workload.Totals) uint64 { return t.Errors + t.Wrong }

// Short prints a time in few characters.
func Short(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
