package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// QualityCase is one arrangement of pickers and its load.
type QualityCase struct {
	Replicas int
	Sharing  rig.Sharing
	Crowd    bool   // chats of one application on eight engines
	Policy   string // its plugin; "": the default policy
}

// QualityCases are the cases of [RunQuality]. The first is the reference of all; the first case of
// one application is the reference of those.
var QualityCases = []QualityCase{
	{Replicas: 1, Sharing: rig.Off}, {Replicas: 3, Sharing: rig.Shared}, {Replicas: 5, Sharing: rig.Shared}, {Replicas: 3, Sharing: rig.Apart},
	{Replicas: 3, Sharing: rig.Shared, Crowd: true, Policy: fewest}, {Replicas: 3, Sharing: rig.Shared, Crowd: true},
}

// fewest is the policy that ignores caches.
const fewest = "load-only-policy"

// String returns the name for tables.
func (c QualityCase) String() string {
	if c.Crowd {
		return "one application, " + cmp.Or(strings.TrimSuffix(c.Policy, "-policy"), "default")
	}
	if c.Replicas == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas, sharing %s", c.Replicas, map[rig.Sharing]string{rig.Shared: "on", rig.Apart: "cut", rig.Off: "off"}[c.Sharing])
}

// QualityRow holds the results of one case.
type QualityRow struct {
	Case      QualityCase
	Result    Result   // of the measured part
	Decisions []int    // by replica, since its start
	Status    []string // by replica: its group state and fallback
	Cores     float64  // of all replicas, in the measured part
	Used      int      // engines that answered in the measured part
	Fullest   float64  // share of the requests at the engine with the most
}

// QualitySummary holds the results of [RunQuality].
type QualitySummary struct {
	Engines int
	Rate    float64 // sessions per second
	Rows    []QualityRow
}

// shortChat is the default workload: chats of many tenants whose system prompts exceed the caches of all
// engines together.
var shortChat = workload.Kind{
	Name: "talk", Shared: 40, Zipf: 1, SharedTokens: 6000, Turns: 4, UserTokens: 80, Spread: .8, Answer: 40, Think: time.Second,
}

// crowd is the workload of the one-application cases. All chats share one system prompt that fits
// in every cache.
var crowd = workload.Kind{
	Name: "crowd", Shared: 1, SharedTokens: 16_000, Turns: 1, UserTokens: 200, Spread: .8, Answer: 100,
}

// Engines and load of the one-application cases. The load is a third of the capacity; the warm-up
// runs at the full rate.
const (
	crowdEngines  = 8
	crowdKVTokens = 64_000
	crowdSpeed    = 1.0
	crowdPace     = 5.0 // factor on the rate, because these sessions have one request
	crowdWarm     = 2   // factor on the warm-up of the others
)

// Times and load of a case. At five sessions per second, the default engines are sometimes
// saturated, even with one replica.
const (
	qualityWarm     = 10 * time.Second // at a third of the rate, then half as long at the full rate
	qualityRun      = 24 * time.Second
	qualityRate     = 4.0    // sessions per second
	qualityKVTokens = 32_000 // per engine
	qualitySpeed    = .5     // slow engines, so that the engines and not this machine limit the result
)

// RunQuality runs the same seeded workload with each of the cases in turn. It returns figures of
// engines and clients. Step is the length of the measured part, default 24 s; Rate is in sessions
// per second, default 4. All processes have ended when it returns.
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

// slower is the divisor of the rate during the warm-up.
func (c QualityCase) slower() float64 {
	if c.Crowd {
		return 1
	}
	return 3
}

func (c QualityCase) kind() workload.Kind {
	if c.Crowd {
		return crowd
	}
	return shortChat
}

// qualityCase measures one case with its own engines, replicas and Envoy.
func qualityCase(ctx context.Context, o Options, c QualityCase) (*QualityRow, error) {
	o.Replicas = c.Replicas
	if c.Crowd {
		o.Engines, o.KVTokens, o.Speed, o.Rate, o.Warm = crowdEngines, crowdKVTokens, crowdSpeed, crowdPace*o.Rate, crowdWarm*o.Warm
	}
	var row *QualityRow
	err := o.stage(ctx, c, func(g *group) (err error) {
		row, err = g.judge(ctx, c)
		return err
	})
	return row, err
}

// flags returns the flags of replica i for sharing and policy.
func (c QualityCase) flags(r *rig.Rig) (func(i int) []string, error) {
	share, err := r.Connect(c.Sharing)
	if err != nil || c.Policy == "" {
		return share, err
	}
	path := filepath.Join(r.Dir, "policy.yaml")
	text := fmt.Sprintf(`apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: %s
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: %[1]s
`, c.Policy)
	return func(i int) []string { return append(share(i), "--config", path) }, os.WriteFile(path, []byte(text), 0o600)
}

// judge runs the workload and reads the results.
func (g *group) judge(ctx context.Context, c QualityCase) (*QualityRow, error) {
	o := workload.Options{
		Source: workload.NewSource(c.kind(), 1, vocab.Name, 0), Client: workload.NewClient(g.URL, 4*Users),
		Ideal: workload.NewIdeal(vocab.New(), rig.BlockSize),
		Rate:  g.o.Rate / c.slower(), First: 1 << 20, Seed: 1, Timeout: 60 * time.Second,
	}
	first, err := workload.Start(o)
	if err != nil {
		return nil, err
	}
	err = pause(g.o.Warm)(ctx)
	StopLoad(ctx, first)
	if err != nil {
		return nil, err
	}
	o.Rate, o.First = g.o.Rate, 0
	w, err := workload.Start(o)
	if err != nil {
		return nil, err
	}
	defer StopLoad(ctx, w)
	if err := pause(g.o.Warm / 2)(ctx); err != nil {
		return nil, err
	}
	warm, used := w.Totals(), cpuOf(g.List)
	if err := g.last(ctx, g.o.Step, w); err != nil {
		return nil, err
	}
	row := &QualityRow{Case: c, Cores: (cpuOf(g.List) - used).Seconds() / time.Since(warm.At).Seconds()}
	row.read(w, &warm)
	for _, p := range g.List {
		st, err := p.Status()
		if err != nil {
			return nil, fmt.Errorf("%s: %w; its last lines:\n%s", p.Name, err, p.Tail(12))
		}
		row.Decisions = append(row.Decisions, st.Decisions)
		row.Status = append(row.Status, strings.TrimSuffix(st.Cluster.Line+"; "+st.Cluster.Fallback, "; "))
	}
	return row, nil
}

// read fills the row from the totals since the end of the warm-up.
func (q *QualityRow) read(w *workload.Runner, warm *workload.Totals) {
	now := w.Totals()
	t := now.Minus(warm)
	q.Result = Result{
		Requests: t.Requests, Failed: Failures(&now), HitRatio: t.HitRatio(), Ideal: t.IdealRatio(),
		PerSecond: float64(t.Requests) / now.At.Sub(warm.At).Seconds(),
		TTFT50:    t.TTFT.Quantile(.5), TTFT90: t.TTFT.Quantile(.9), LastError: w.LastError(),
	}
	most := uint64(0)
	for _, e := range t.Engines {
		if e.Requests > 0 {
			q.Used, most = q.Used+1, max(most, e.Requests)
		}
	}
	q.Fullest = float64(most) / float64(max(t.Requests, 1))
}

// cpuOf returns the total CPU time of the replicas.
func cpuOf(replicas []*rig.Replica) (sum time.Duration) {
	for _, p := range replicas {
		if u, err := bench.ReadUsage(p.Cmd.Process.Pid); err == nil {
			sum += u.CPU
		}
	}
	return sum
}
