package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// SoakSample holds the resources of a replica at one moment.
type SoakSample struct {
	At         time.Duration // since the start of the load
	Replica    int
	RSS        int64 // bytes
	Live       int64 // live heap bytes after the last garbage collection
	Goroutines int
	Dropped    uint64 // frames dropped by full queues to peers
	Entries    int    // index entries
}

// SoakSummary holds the results of [RunSoak].
type SoakSummary struct {
	Engines, Replicas int
	Length            time.Duration
	Restarts          int // of engines
	Requests, Failed  uint64
	Stored            uint64 // blocks that engines computed and published
	Samples           []SoakSample
	Alarms            []string // healthy engines that a replica took out of service, once for each time
	Looks             int      // how often the engines' states were read
	Missed            int      // sampling rounds in which a replica did not answer
}

// Load of a soak: single requests of unrelated sessions, so every block is stored, published,
// shared, evicted and published again.
const (
	soakRate     = 30.0 // requests per second
	soakUsers    = 256  // maximum number of connections
	soakKVTokens = 16_000
	soakRestart  = 15 * time.Second // between restarts of an engine
	soakFill     = 20               // concurrent requests that fill an engine's cache
	soakLook     = time.Second      // between looks at the states of engines
	// soakRecovers is how long after the start of a restart an engine may be out. Returning takes three
	// probes, and longer after repeated failures.
	soakRecovers = 45 * time.Second
)

var newClients = workload.Kind{Name: "new-clients", Turns: 1, UserTokens: 1200, Spread: .8, Answer: 8}

// RunSoak runs replicas of one gossip group under load for Options.Step. Requests evict each
// other's blocks, and every 15 s an engine is restarted. Caches are full from the start and soon
// after each restart. RunSoak samples the resources of each replica. All processes have ended when
// it returns.
func RunSoak(ctx context.Context, o Options) (*SoakSummary, error) {
	o.KVTokens, o.Speed = soakKVTokens, 20
	var s *SoakSummary
	err := o.stage(ctx, QualityCase{Sharing: rig.Shared}, func(g *group) (err error) {
		s, err = g.soak(ctx)
		return err
	})
	if ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	if err != nil {
		return nil, fmt.Errorf("demo: soak: %w", err)
	}
	return s, nil
}

// soak runs the load.
func (g *group) soak(ctx context.Context) (*SoakSummary, error) {
	var filled errgroup.Group
	for i, e := range g.Fleet.Engines() {
		filled.Go(func() error { return fill(ctx, e, uint64(i)) })
	}
	if err := filled.Wait(); err != nil {
		return nil, err
	}
	client := workload.NewClient(g.URL, soakUsers)
	client.SessionHeader = request.HeaderSession
	w, err := workload.Start(workload.Options{
		Source: workload.NewSource(newClients, 1, vocab.Name, .5), Client: client,
		Rate: soakRate, Seed: 1, Timeout: 30 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	defer StopLoad(ctx, w)
	return g.soaking(ctx, w)
}

// fill sends unique prompts directly to an engine until its cache is full. The load alone would use
// few engines and leave the others empty.
func fill(ctx context.Context, e *sim.Engine, salt uint64) error {
	client := workload.NewClient("http://"+e.Addr(), soakFill)
	defer client.Close()
	w, err := workload.Start(workload.Options{
		Source: workload.NewSource(newClients, 2+salt, vocab.Name, 0), Client: client,
		Users: 2, Requests: soakFill, Timeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { w.Stop(ctx) })
	defer stop()
	w.Wait()
	return nil
}

// soaking restarts engines and takes samples until the end.
func (g *group) soaking(ctx context.Context, w *workload.Runner) (*SoakSummary, error) {
	s := &SoakSummary{Engines: len(g.Fleet.Engines()), Replicas: len(g.List), Length: g.o.Step}
	begun := time.Now()
	sample := time.NewTicker(max(g.o.Step/120, 250*time.Millisecond))
	defer sample.Stop()
	restart := time.NewTicker(min(soakRestart, g.o.Step/4))
	defer restart.Stop()
	end := time.NewTimer(g.o.Step)
	defer end.Stop()
	look := time.NewTicker(soakLook)
	defer look.Stop()
	restarts := map[string]time.Time{} // by address
	out := map[string]bool{}           // by replica and address, as of the last look
	said := begun
	if err := s.take(g.List, begun); err != nil {
		return nil, err
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			t := w.Totals()
			s.Requests, s.Failed, s.Stored = t.Requests, Failures(&t), (t.PromptTokens-t.CachedTokens+t.OutputTokens)/rig.BlockSize
			return s, nil
		case <-restart.C:
			e := g.Fleet.Engines()[s.Restarts%s.Engines]
			restarts[e.Addr()] = time.Now()
			if err := e.Restart(sim.RestartOptions{Down: 200 * time.Millisecond}); err != nil {
				return nil, err
			}
			if err := fill(ctx, e, uint64(s.Engines+s.Restarts)); err != nil {
				return nil, err
			}
			restarts[e.Addr()] = time.Now()
			s.Restarts++
		case <-look.C:
			s.look(g.List, restarts, out, time.Since(begun))
		case <-sample.C:
			if err := s.take(g.List, begun); err != nil {
				return nil, err
			}
			if len(s.Samples) > 0 && time.Since(said) > g.o.Step/10 {
				said = time.Now()
				fmt.Fprintln(g.o.Out, s.line())
			}
		}
	}
}

// look records each engine that a replica has taken out of service since the last look although the engine
// was not restarted.
func (s *SoakSummary) look(replicas []*rig.Replica, restarts map[string]time.Time, out map[string]bool, at time.Duration) {
	for _, p := range replicas {
		st, err := p.Status()
		if err != nil { // take counts missing answers
			continue
		}
		s.Looks++
		for _, e := range st.Endpoints {
			key := p.Name + " " + e.Address
			is := e.Health.State == "out" || e.Health.State == "probing"
			if is && !out[key] && time.Since(restarts[e.Address]) > soakRecovers {
				s.Alarms = append(s.Alarms, fmt.Sprintf("%s took %s out of service after %v: %s", p.Name, e.Address, at.Round(time.Second), e.Health.Cause))
			}
			out[key] = is
		}
	}
}

// take samples all replicas, or none if one does not answer, as on a machine that stalls for
// seconds. It returns an error if a replica has ended.
func (s *SoakSummary) take(replicas []*rig.Replica, begun time.Time) error {
	round := make([]SoakSample, len(replicas))
	for i, p := range replicas {
		var err error
		if round[i], err = sample(p); err != nil {
			select {
			case <-p.Done:
				return fmt.Errorf("%s %w: %w; its last lines:\n%s", p.Name, ErrEnded, err, p.Tail(12))
			default:
			}
			if s.Missed++; errors.Is(err, errMetrics) {
				return err
			}
			return nil
		}
		round[i].At, round[i].Replica = time.Since(begun), i
	}
	s.Samples = append(s.Samples, round...)
	return nil
}

// line formats the latest sample of each replica.
func (s *SoakSummary) line() string {
	last := s.Samples[len(s.Samples)-s.Replicas:]
	out := fmt.Sprintf("%6.0fs ", last[0].At.Seconds())
	for _, x := range last {
		out += fmt.Sprintf("  %5.1f MB %4d goroutines %6d entries", float64(x.RSS)/(1<<20), x.Goroutines, x.Entries)
	}
	return out
}

var errMetrics = errors.New("metrics page lacks a figure")

// sample reads a replica's resources from /proc and its metrics.
func sample(p *rig.Replica) (x SoakSample, err error) {
	u, err := bench.ReadUsage(p.Cmd.Process.Pid)
	if err != nil {
		return x, fmt.Errorf("%s: %w", p.Name, err)
	}
	x.RSS = u.RSS
	st, err := p.Status()
	if err != nil {
		return x, fmt.Errorf("%s: %w", p.Name, err)
	}
	x.Entries = st.Index.Entries
	sums, err := p.Metrics("go_gc_heap_live_bytes", "go_goroutines", "grapevine_cluster_queue_dropped_frames_total")
	if err != nil {
		return x, err
	}
	x.Live, x.Goroutines, x.Dropped = int64(sums[0]), int(sums[1]), uint64(sums[2])
	if x.Live == 0 || x.Goroutines == 0 {
		return x, fmt.Errorf("%s: %w", p.Name, errMetrics)
	}
	return x, nil
}
