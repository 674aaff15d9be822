package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// Sharing is how the replicas of a quality case are connected.
type Sharing string

// The ways.
const (
	Shared Sharing = "shared" // one gossip group
	Apart  Sharing = "cut"    // a group that cannot talk: every replica has another key
	Off    Sharing = "off"    // --cluster none
)

// QualityCase is one way to run the pickers.
type QualityCase struct {
	Replicas int
	Sharing  Sharing
}

// QualityCases are those that RunQuality compares, the measure of all first.
var QualityCases = []QualityCase{{1, Off}, {3, Shared}, {5, Shared}, {3, Apart}}

// String names the case as tables do.
func (c QualityCase) String() string {
	if c.Replicas == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas, sharing %s", c.Replicas, map[Sharing]string{Shared: "on", Apart: "cut", Off: "off"}[c.Sharing])
}

// QualityRow is what one case gave.
type QualityRow struct {
	Case      QualityCase
	Result    Result   // of the measured part
	Decisions []int    // by replica, from its start
	Status    []string // by replica: what it says of the group, and its fallback
	Cores     float64  // of all replicas together, in the measured part
}

// QualitySummary is what RunQuality measured.
type QualitySummary struct {
	Engines int
	Rate    float64 // sessions per second
	Rows    []QualityRow
}

// talk is the workload of a case: chats of many tenants, whose system prompts
// alone are more than the caches of all engines together hold.
var talk = workload.Kind{
	Name: "talk", Shared: 40, Zipf: 1, SharedTokens: 6000, Turns: 4, UserTokens: 80, Spread: .8, Answer: 40, Think: time.Second,
}

// Times and load of a case. At a rate of 5 the engines of the default fleet fall
// behind now and then, with one replica too.
const (
	qualityWarm     = 10 * time.Second // at a third of the rate, then half as long at the rate, not measured
	qualityRun      = 24 * time.Second
	qualityRate     = 4.0    // sessions per second
	qualityKVTokens = 32_000 // per engine
	qualitySpeed    = .5     // slow engines, so that they and not this machine decide
)

// RunQuality sends the same seeded workload, at the same times, to engines
// behind each of the cases, one after the other, and returns what the engines
// reported and clients noticed. Step is the length of the measured part, default
// 24 s; Rate is sessions per second, default 4. Everything that it starts has
// ended when it returns.
func RunQuality(ctx context.Context, o Options, cases []QualityCase) (*QualitySummary, error) {
	if o.Step == 0 {
		o.Step = qualityRun
	}
	if o.Rate == 0 {
		o.Rate = qualityRate
	}
	if o.KVTokens == 0 {
		o.KVTokens = qualityKVTokens
	}
	if o.Speed == 0 {
		o.Speed = qualitySpeed
	}
	if o.Warm == 0 {
		o.Warm = qualityWarm
	}
	s := &QualitySummary{Engines: o.Engines, Rate: o.Rate}
	for _, c := range cases {
		row, err := qualityCase(ctx, o, c)
		switch {
		case ctx.Err() != nil:
			return nil, ErrInterrupted
		case err != nil:
			return nil, fmt.Errorf("demo: %s: %w", c, err)
		}
		s.Rows = append(s.Rows, *row)
		fmt.Fprintln(o.Out, row.line())
	}
	return s, nil
}

// qualityCase measures one case with engines, replicas and an Envoy of its own.
func qualityCase(ctx context.Context, o Options, c QualityCase) (*QualityRow, error) {
	o.Replicas = c.Replicas
	var row *QualityRow
	err := o.stage(ctx, c.Sharing, func(g *group) (err error) {
		row, err = g.judge(ctx, c, g.url, g.list)
		return err
	})
	return row, err
}

// connect returns the flags by which replicas share, or do not.
func (r *run) connect(s Sharing) (func(i int) []string, error) {
	if s == Off {
		return func(int) []string { return nil }, nil
	}
	m, err := newMembership(r.o.Replicas)
	if err != nil {
		return nil, err
	}
	keys := make([]string, r.o.Replicas)
	for i := range keys {
		if i > 0 && s == Shared {
			keys[i] = keys[0]
			continue
		}
		if keys[i], err = r.newKey(fmt.Sprintf("group-%d.key", i)); err != nil {
			return nil, err
		}
	}
	return func(i int) []string { return m.flags(i, "partitioned", keys[i]) }, nil
}

// judge plays the workload and reads what came of it.
func (r *run) judge(ctx context.Context, c QualityCase, url string, replicas []*replica) (*QualityRow, error) {
	o := workload.Options{
		Source: workload.NewSource(talk, 1, vocab.Name, 0), Client: workload.NewClient(url, 4*users),
		Ideal: workload.NewIdeal(vocab.New(), blockSize),
		Rate:  r.o.Rate / 3, First: 1 << 20, Seed: 1, Timeout: 60 * time.Second,
	}
	first, err := workload.Start(o)
	if err != nil {
		return nil, err
	}
	err = pause(r.o.Warm)(ctx)
	stopLoad(ctx, first)
	if err != nil {
		return nil, err
	}
	o.Rate, o.First = r.o.Rate, 0
	w, err := workload.Start(o)
	if err != nil {
		return nil, err
	}
	defer stopLoad(ctx, w)
	if err := pause(r.o.Warm / 2)(ctx); err != nil {
		return nil, err
	}
	warm, used := w.Tally(), cpuOf(replicas)
	if err := pause(r.o.Step)(ctx); err != nil {
		return nil, err
	}
	row := &QualityRow{Case: c, Cores: (cpuOf(replicas) - used).Seconds() / time.Since(warm.At).Seconds()}
	row.read(w, &warm)
	for _, p := range replicas {
		st, err := p.status()
		if err != nil {
			return nil, fmt.Errorf("%s: %w; its last lines:\n%s", p.name, err, p.tail(12))
		}
		row.Decisions = append(row.Decisions, st.Decisions)
		row.Status = append(row.Status, strings.TrimSuffix(st.Cluster.Line+"; "+st.Cluster.Fallback, "; "))
	}
	return row, nil
}

// read takes over what was tallied since the caches were warm.
func (q *QualityRow) read(w *workload.Runner, warm *workload.Tally) {
	now := w.Tally()
	t := now.Minus(warm)
	q.Result = Result{
		Requests: t.Requests, Failed: failures(&now), HitRatio: t.HitRatio(), Ideal: t.IdealRatio(),
		PerSecond: float64(t.Requests) / now.At.Sub(warm.At).Seconds(),
		TTFT50:    t.TTFT.Quantile(.5), TTFT90: t.TTFT.Quantile(.9), LastError: w.LastError(),
	}
}

// cpuOf adds up the processor time that replicas have used.
func cpuOf(replicas []*replica) (sum time.Duration) {
	for _, p := range replicas {
		if u, err := bench.ReadUsage(p.cmd.Process.Pid); err == nil {
			sum += u.CPU
		}
	}
	return sum
}
