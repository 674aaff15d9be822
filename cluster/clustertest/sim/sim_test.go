package sim

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

var (
	seeds = flag.Int("cluster.seeds", defaultSeeds, "number of seeds to simulate")
	first = flag.Uint64("cluster.seed", 1, "first seed")
)

// TestReplay: a seed determines the history down to the last frame.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		a, b := RunSeed(seed), RunSeed(seed)
		if a.Stats != b.Stats || a.Convergence != b.Convergence || !slices.Equal(a.Trace, b.Trace) {
			t.Errorf("seed %d: %+v and %+v", seed, a, b)
		}
	}
}

// TestLargeSnapshots loads snapshots of hundreds of pages over a bad network, while senders die,
// engines restart, and sources come and go. Replay one with -run TestLargeSnapshots -cluster.seed=N
// -cluster.seeds=1 -v.
func TestLargeSnapshots(t *testing.T) {
	var sum Stats
	n := max(1, *seeds/4)
	for seed := *first; seed < *first+uint64(n); seed++ {
		r := RunLarge(seed)
		sum.Snapshots, sum.Stages, sum.Discarded = sum.Snapshots+r.Stats.Snapshots, sum.Stages+r.Stats.Stages, sum.Discarded+r.Stats.Discarded
		if len(r.Failures) > 0 {
			t.Fatalf("seed %d:\nfaults:\n  %s\nfailures:\n  %s", seed, strings.Join(r.Trace, "\n  "), strings.Join(r.Failures, "\n  "))
		}
		if *seeds == 1 {
			t.Logf("%+v\n%s\n%+v", Large(seed), strings.Join(r.Trace, "\n"), r.Stats)
		}
	}
	t.Logf("%d seeds: %d snapshots made, %d loads begun, %d given up", n, sum.Snapshots, sum.Stages, sum.Discarded)
	if n > 10 && (sum.Stages == sum.Discarded || sum.Discarded == 0) {
		t.Errorf("%d loads started, %d discarded: the simulation misses its purpose", sum.Stages, sum.Discarded)
	}
}

// TestSeeds runs many random histories. Replay one with -run TestSeeds -cluster.seed=N
// -cluster.seeds=1 -v.
func TestSeeds(t *testing.T) {
	parts.Full(t)
	var took []time.Duration
	exact, batches, failed := 0, 0, 0
	var oldest []time.Duration
	watched, behind := 0, 0
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		r := RunSeed(seed)
		took = append(took, r.Convergence)
		batches += r.Stats.Batches
		oldest = append(oldest, r.Stats.Oldest)
		watched, behind = watched+r.Stats.Watched, behind+r.Stats.Behind
		if r.Exact {
			exact++
		}
		if len(r.Failures) > 0 {
			failed++
			t.Errorf("seed %d (replay: go test ./cluster/clustertest/sim -run TestSeeds -cluster.seed=%d -cluster.seeds=1 -v):\nfaults:\n  %s\nfailures:\n  %s",
				seed, seed, strings.Join(r.Trace, "\n  "), strings.Join(r.Failures, "\n  "))
			if failed >= 5 {
				t.FailNow()
			}
		}
		if *seeds == 1 {
			t.Logf("%+v\n%s\n%+v", Random(seed), strings.Join(r.Trace, "\n"), r.Stats)
		}
	}
	slices.Sort(took)
	slices.Sort(oldest)
	t.Logf("during faults, of %d looks at what is said to be known exactly %.2f%% were not the latest; the oldest of a seed: p50 %v, p99 %v, max %v",
		watched, 100*float64(behind)/float64(max(watched, 1)), oldest[len(oldest)/2], oldest[len(oldest)*99/100], oldest[len(oldest)-1])
	t.Logf("%d seeds, %d batches, %d exact at the end; converged after p50 %v, p99 %v, max %v",
		*seeds, batches, exact, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}

// TestZones is TestSeeds for members in several zones. Deltas cross each border once and are
// relayed behind it, while relays die, pause, drain or cannot reach their neighbors, and some
// members are of a release without relays.
func TestZones(t *testing.T) {
	parts.Full(t)
	var took []time.Duration
	var oldest time.Duration
	var relayed, missed uint64
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		r := RunPlan(Zoned(seed))
		took, oldest = append(took, r.Convergence), max(oldest, r.Stats.Oldest)
		relayed, missed = relayed+r.Stats.Relayed, missed+r.Stats.RelayMissed
		if len(r.Failures) > 0 {
			t.Fatalf("seed %d (replay: go test ./cluster/clustertest/sim -run TestZones -cluster.seed=%d -cluster.seeds=1 -v):\nfaults:\n  %s\nfailures:\n  %s",
				seed, seed, strings.Join(r.Trace, "\n  "), strings.Join(r.Failures, "\n  "))
		}
		if *seeds == 1 {
			t.Logf("%+v\n%s\n%+v", Zoned(seed), strings.Join(r.Trace, "\n"), r.Stats)
		}
	}
	slices.Sort(took)
	t.Logf("%d seeds, %d frames passed on, %d times one did not come; the oldest of what is said to be known exactly %v; converged after p50 %v, p99 %v, max %v",
		*seeds, relayed, missed, oldest, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	if *seeds > 10 && (relayed == 0 || missed == 0) {
		t.Error("no frame was relayed, or none was missed: the simulation misses its purpose")
	}
}
