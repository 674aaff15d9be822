package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// Load of the benchmarks.
const (
	benchHeld = 3_000 // blocks that each engine holds
	benchLoad = 5 * time.Second
	benchIdle = 4 * time.Second
)

// BenchmarkCluster replays 100,000 block changes a second on the event streams of 40 engines. Three
// complete replicas share the streams: each reads a third. It reports the delay from an event until
// the last replica has applied it, the bytes for each change and peer, and the CPU time.
//
// The CPU time of reading a stream comes from a run with one replica, minus a run with none. The
// CPU time of receiving from a peer is the difference between that run and the run with three
// replicas. "prompts" are stores of 25 blocks. "steps" are the events of decoding engines: one
// block of each of eight sequences.
func BenchmarkCluster(b *testing.B) {
	for _, c := range []struct {
		name           string
		stores, blocks int // of one batch; as many blocks are removed
	}{{"prompts", 1, 25}, {"steps", 8, 1}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var cpu [4]float64
				for _, replicas := range []int{0, 1, 3} {
					r := newClusterRig(b, 40, 100_000, replicas)
					before, wire := used(), r.sent(true)
					changes := r.play(c.stores, c.blocks)
					cpu[replicas] = (used() - before).Seconds() / float64(changes) * 1e6
					if replicas == 3 {
						b.ReportMetric(float64(r.sent(true)-wire)/float64(changes)/2, "B/change")
						r.report(changes)
					}
					r.close()
				}
				b.ReportMetric(cpu[1]-cpu[0], "owner-cpu-s/Mchange")
				b.ReportMetric((cpu[3]-cpu[1])/2, "follower-cpu-s/Mchange")
			}
		})
	}
}

// Limits of BenchmarkTwelveReplicas for each replica. They are about twice the usual figures.
const (
	twelveBytes = 500_000 // per second
	twelveCores = .15
)

// BenchmarkTwelveReplicas replays 20,000 block changes a second on the event streams of 16 engines, which
// twelve complete replicas share over real sockets. It reports the bytes that a replica sends to others and
// its CPU time, at that load and at rest, without the CPU time of the engines.
func BenchmarkTwelveReplicas(b *testing.B) {
	const engines, rate, replicas = 16, 20_000, 12
	for _, c := range []struct {
		name           string
		stores, blocks int
	}{{"prompts", 1, 25}, {"steps", 8, 1}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var cores [replicas + 1]float64
				for _, n := range []int{0, replicas} {
					r := newClusterRig(b, engines, rate, n)
					cpu, wire, begun := used(), r.sent(false), time.Now()
					r.play(c.stores, c.blocks)
					took := time.Since(begun).Seconds()
					cores[n] = (used() - cpu).Seconds() / took
					if n > 0 {
						out := float64(r.sent(false)-wire) / took / replicas
						each := (cores[n] - cores[0]) / replicas
						b.ReportMetric(out/1e3, "kB/s/replica")
						b.ReportMetric(each, "cores/replica")
						if out > twelveBytes || each > twelveCores {
							b.Errorf("%.0f bytes/s and %.3f cores for each replica, want at most %d and %v", out, each, twelveBytes, twelveCores)
						}
						cpu, wire, begun = used(), r.sent(false), time.Now()
						time.Sleep(benchIdle)
						took = time.Since(begun).Seconds()
						b.ReportMetric(float64(r.sent(false)-wire)/took/replicas/1e3, "idle-kB/s/replica")
						b.ReportMetric((used()-cpu).Seconds()/took/replicas, "idle-cores/replica")
					}
					r.close()
				}
			}
		})
	}
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// clusterRig is engines whose event streams the benchmark writes, and replicas.
type clusterRig struct {
	b       *testing.B
	rate    int // block changes per second, over all engines
	fleet   *fleet.Fleet
	streams []*benchStream
	servers []*Server
	late    []time.Duration
	tokens  []uint32
}

// benchStream is the event stream of one engine: its chains grow at their ends, and are removed
// from their beginnings.
type benchStream struct {
	source string
	pub    *kvstream.Publisher
	held   []engine.Hash
	ends   [8]engine.Hash // of the chains
	next   engine.Hash
	seq    uint64
}

func newClusterRig(b *testing.B, engines, rate, replicas int) *clusterRig {
	b.Helper()
	r := &clusterRig{b: b, rate: rate}
	dir := b.TempDir()
	var err error
	if r.fleet, err = fleet.Open(fleet.Options{Engines: engines, Engine: sim.Options{Events: &sim.EventOptions{}}}); err != nil {
		b.Fatal(err)
	}
	list := r.fleet.Endpoints()
	for i := range list {
		p, err := kvstream.Open(kvstream.Options{Addr: "127.0.0.1:0", ReplayAddr: "127.0.0.1:0"})
		if err != nil {
			b.Fatal(err)
		}
		e := &list[i]
		e.Events = &fleet.EndpointEvents{Port: port(b, p.Addr()), ReplayPort: port(b, p.ReplayAddr())}
		r.streams = append(r.streams, &benchStream{
			source: share.SourceName(net.JoinHostPort(e.Address, strconv.Itoa(e.Port)), 0), pub: p, next: engine.Hash(i+1) << 40,
		})
	}
	raw, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(dir, "endpoints.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		b.Fatal(err)
	}
	model := filepath.Join(dir, "model")
	if err := vocab.New().WriteModel(model); err != nil {
		b.Fatal(err)
	}
	words := vocab.New().Words()
	rng := rand.New(rand.NewPCG(1, 1))
	var text []byte
	for range 4096 {
		text = append(append(text, ' '), words[rng.IntN(len(words))]...)
	}
	r.tokens = vocab.New().AppendTokens(nil, text, false)
	r.open(replicas, file, model)
	return r
}

func port(b *testing.B, addr string) int {
	_, text, err := net.SplitHostPort(addr)
	n, bad := strconv.Atoi(text)
	if err != nil || bad != nil {
		b.Fatal(addr)
	}
	return n
}

// open starts the replicas, fills the engines' caches and waits until every replica has indexed
// them.
func (r *clusterRig) open(replicas int, file, model string) {
	r.b.Helper()
	var join []string
	for i := range replicas {
		at := parts.FreeAddress(r.b)
		s, err := Open(Options{
			Name: fmt.Sprintf("replica-%d", i), Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: file, Log: slog.New(slog.DiscardHandler),
			Models: []ModelOptions{{Name: vocab.Name, Path: model}},
			Cluster: ClusterOptions{
				Mode: "gossip", Share: "partitioned", Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: at, StreamBind: "127.0.0.1:0", Join: join,
			},
		})
		if err != nil {
			r.b.Fatal(err)
		}
		join = append(join, at)
		r.servers = append(r.servers, s)
	}
	testkit.Await(r.b, "replicas are ready", func() bool {
		for _, s := range r.servers {
			if !s.stage.settled.Load() || s.knowledge.pending() > 0 {
				return false
			}
		}
		return true
	})
	for _, x := range r.streams {
		for len(x.held) < benchHeld {
			x.publish(r.tokens, len(x.ends), 25, 0)
		}
	}
	r.caughtUp()
	runtime.GC()
}

// has reports whether every replica has applied a stream up to seq.
func (r *clusterRig) has(x *benchStream, seq uint64) bool {
	for _, s := range r.servers {
		if s.share.Position(x.source).Next < seq {
			return false
		}
	}
	return true
}

func (r *clusterRig) caughtUp() {
	r.b.Helper()
	testkit.Await(r.b, "every replica has every event", func() bool {
		return !slices.ContainsFunc(r.streams, func(x *benchStream) bool { return !r.has(x, x.seq) })
	})
}

// publish sends one batch: stores stores of blocks blocks, then removals.
func (x *benchStream) publish(tokens []uint32, stores, blocks, removals int) {
	var list []engine.Event
	for i := range stores {
		e, end := engine.Event{Kind: engine.Stored}, &x.ends[i%len(x.ends)]
		e.HasParent, e.Parent = *end != 0, *end
		for range blocks {
			x.next++
			e.Hashes = append(e.Hashes, engine.Hash(uint64(x.next)*0x9e3779b97f4a7c15))
		}
		from := int(x.next) * 7 % (len(tokens) - 16*blocks)
		e.Tokens = tokens[from : from+16*blocks]
		x.held, *end = append(x.held, e.Hashes...), e.Hashes[blocks-1]
		list = append(list, e)
	}
	for _, h := range x.held[:removals] {
		list = append(list, engine.Event{Kind: engine.Removed, Hash: h})
	}
	x.held = x.held[removals:]
	x.seq++
	x.pub.Publish(kvstream.AppendBatch(nil, kvstream.FormatMap, kvstream.Batch{Time: 1, BlockSize: 16}, list))
}

// play publishes at the rate until the time is over, looks now and then how long
// an event takes to the last replica, and returns the number of changes.
func (r *clusterRig) play(stores, blocks int) (changes int) {
	per := 2 * stores * blocks
	every := time.Second * time.Duration(per) / time.Duration(r.rate)
	probe := make(chan func() bool, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for arrived := range probe {
			begun := time.Now()
			for !arrived() {
				time.Sleep(200 * time.Microsecond)
			}
			r.late = append(r.late, time.Since(begun))
		}
	})
	begun := time.Now()
	for i := 0; time.Since(begun) < benchLoad; i++ {
		if d := time.Until(begun.Add(time.Duration(i) * every)); d > time.Millisecond {
			time.Sleep(d)
		}
		x := r.streams[i%len(r.streams)]
		x.publish(r.tokens, stores, blocks, stores*blocks)
		seq := x.seq
		select {
		case probe <- func() bool { return r.has(x, seq) }:
		default: // the previous one is still running
		}
		changes += per
	}
	close(probe)
	wg.Wait()
	if took := time.Since(begun); took > benchLoad*11/10 {
		r.b.Logf("the machine is too busy: %v for %d changes", took, changes)
	}
	r.caughtUp()
	return changes
}

// report prints the results of the run with three replicas, and then the traffic of an idle group.
func (r *clusterRig) report(changes int) {
	slices.Sort(r.late)
	at := func(q float64) float64 {
		return r.late[int(math.Ceil(q*float64(len(r.late))))-1].Seconds() * 1e3
	}
	r.b.ReportMetric(at(.5), "p50-ms")
	r.b.ReportMetric(at(.99), "p99-ms")
	r.b.ReportMetric(float64(changes)/benchLoad.Seconds(), "changes/s")
	before := r.sent(false)
	time.Sleep(benchIdle)
	idle := r.sent(false) - before
	r.b.ReportMetric(float64(idle)/benchIdle.Seconds()/float64(len(r.servers)), "idle-B/s/replica")
}

// sent adds up the bytes that replicas have sent to each other: for the index
// alone, or for everything.
func (r *clusterRig) sent(index bool) (sum uint64) {
	for _, s := range r.servers {
		for _, p := range s.node.Status().Peers {
			for _, f := range p.Traffic {
				if !index || strings.HasPrefix(f.State, "index") {
					sum += f.BytesOut
				}
			}
		}
	}
	return sum
}

func (r *clusterRig) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once
	for _, s := range r.servers {
		_ = s.Stop(ctx)
	}
	for _, x := range r.streams {
		_ = x.pub.Close()
	}
	_ = r.fleet.Close()
}
