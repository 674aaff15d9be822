package health

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// together is a world in which every endpoint has a fault. Each fault has its own start.
type together struct {
	*world
	begun, over time.Duration // start of the last fault; end of all faults and their late requests
	cost        map[string]int
	missed      map[string]int // ticks for which a usable endpoint was excluded, by replica and id
}

const (
	togetherEnd   = 22 * time.Second // of the first fault
	togetherAfter = 11 * time.Second // observation time after the end of all faults
	togetherGrace = 6 * time.Second  // time to detect the common fault
	togetherBack  = 5 * time.Second
)

func newTogether(seed uint64) *together {
	w := &together{world: newWorld(seed), cost: map[string]int{"slow": tardy, "cut": halves}, missed: map[string]int{}}
	w.rng = rand.New(rand.NewPCG(seed, 2))
	w.cut, w.calm = w.rng.IntN(4) == 0, true
	w.rate = []float64{.3, 1, 3}[w.rng.IntN(3)] * (1 + w.rng.Float64())
	for _, r := range w.replicas {
		r.blind = -1
	}
	kinds := [...][]string{
		{"fail"}, {"reset"}, {"some"}, {"hang"}, {"dead"}, {"slow"}, {"cut"}, {"fail", "reset"}, {"fail", "hang"}, {"hang", "slow"}, {"fail", "slow"}, {"fail", "cut"},
		{"fail", "reset", "hang", "dead"},
	}
	among := kinds[w.rng.IntN(len(kinds))]
	early := w.rng.IntN(6) // 0, 1: some have been out for long when the others fail
	apart := time.Duration([]int{0, 200, 1000, 4000}[w.rng.IntN(4)]) * time.Millisecond
	for id := range w.faults {
		begin := 2*time.Second + time.Duration(w.rng.Int64N(int64(apart)+1))
		if early < 2 && id%2 != early {
			begin += 5 * time.Second
		}
		end := togetherEnd + time.Duration(w.rng.IntN(1000))*time.Millisecond
		w.faults[id] = simFault{among[w.rng.IntN(len(among))], begin, end}
		w.begun = max(w.begun, begin)
		if w.faults[id].kind == "slow" { // requests in flight stay slow until the clients leave
			end += 8 * time.Second
		}
		w.over = max(w.over, end)
	}
	return w
}

// severity returns how bad an endpoint's fault is for clients.
func (w *together) severity(id int) int {
	if s, ok := w.cost[w.faults[id].kind]; ok {
		return s
	}
	return nothing
}

// noBetter reports whether most endpoints are as bad as the given one.
func (w *together) noBetter(id int) bool {
	n := 0
	for o := range w.faults {
		if w.severity(o) >= w.severity(id) {
			n++
		}
	}
	return 2*n > len(w.faults)
}

// wrong returns the violated rules while all endpoints have their faults, or none has one.
func (w *together) wrong() string {
	at := w.now.Sub(time.Unix(1000, 0))
	for _, r := range w.replicas {
		snap := r.set.Snapshot()
		for id := range simEndpoints {
			v := snap.View(id)
			switch {
			case at > w.begun+togetherGrace && at < togetherEnd && w.leftOut(r.name, id, v):
				return fmt.Sprintf("replica %s: endpoint %d is %s (%s) with share %d, and most are no better", r.name, id, v.State, v.Cause, v.Share)
			case at > w.over+togetherBack && v.State != Healthy && v.State != Returning:
				return fmt.Sprintf("replica %s: endpoint %d is %s (%s: %s; back by %s) 5 s after the end", r.name, id, v.State, v.Cause, v.Evidence(), v.Remedy())
			}
		}
		switch {
		case at > w.begun+togetherGrace && at < togetherEnd && len(snap.GroupProblems) == 0 && w.allFail():
			return fmt.Sprintf("replica %s: nothing says that all endpoints are in trouble", r.name)
		case at > w.over+togetherBack+calmFor && len(snap.GroupProblems) > 0:
			return fmt.Sprintf("replica %s: %v after the end it is still said that %+v", r.name, at-w.over, snap.GroupProblems)
		}
	}
	return ""
}

// leftOut reports whether an endpoint is excluded although most are no better. If half of the
// requests fail, a few endpoints may look better for a while.
func (w *together) leftOut(replica string, id int, v View) bool {
	key := fmt.Sprint(replica, id)
	if v.Share == Full || !w.noBetter(id) || v.Cause == Probe && w.severity(id) != nothing {
		w.missed[key] = 0
		return false
	}
	w.missed[key]++
	return w.faults[id].kind != "some" || w.missed[key] > int(6*time.Second/tick)
}

// allFail reports whether all requests fail. If they are late or cut, and every endpoint is used,
// the snapshot reports nothing.
func (w *together) allFail() bool {
	for id := range w.faults {
		if w.severity(id) != nothing {
			return false
		}
	}
	return true
}

// TestAllFailing: while all endpoints have faults, the endpoints that are no worse than most
// are used, and the snapshot reports that all fail. This holds for any order of the faults and any
// earlier state. After recovery, all endpoints return within five seconds.
func TestAllFailing(t *testing.T) {
	bad := 0
	for seed := range numSeeds() {
		w := newTogether(seed)
		for w.now.Sub(time.Unix(1000, 0)) < w.over+togetherAfter {
			w.tick()
			wrong := w.wrong()
			if wrong == "" {
				continue
			}
			if bad++; bad <= 3 {
				for _, l := range w.log {
					t.Log(l)
				}
			}
			t.Errorf("seed %d at %s, %d replicas, cut %v, %.1f requests a tick, faults %v: %s", seed, w.now.Sub(time.Unix(1000, 0)), len(w.replicas), w.cut, w.rate, w.faults, wrong)
			break
		}
	}
}
