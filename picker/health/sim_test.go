package health

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var seeds = flag.Int("seeds", 500, "seeds of TestSeeds")

// world is a pool of endpoints in virtual time. Each replica sees a part of its requests.
type world struct {
	rng      *rand.Rand
	now      time.Time
	replicas []*simReplica
	faults   []simFault  // by endpoint
	cut      bool        // the replicas do not share
	cuts     []time.Time // sending times of requests whose answers broke off
	log      []string
	rate     float64 // requests per tick at each replica
	calm     bool    // no random failures
}

// simFault is the kind and time of one endpoint's fault.
type simFault struct {
	kind       string // "", hang, dead, fail, some, refuse, slow, reset
	begin, end time.Duration
}

// simReplica is one replica: its observations and its state.
type simReplica struct {
	name     string
	set      *Set
	trackers []Tracker
	page     []time.Time // when the page last answered
	blind    int         // endpoint whose page it cannot reach; -1: none
	flying   []*simRequest
	probes   [][3]uint64
	met      []time.Duration // when a request first met the endpoint's fault; 0: never
}

type simRequest struct {
	Watch
	ep     int
	ends   time.Time // zero: never, the client gives up
	gives  time.Time
	result Cause
	cut    bool // for the client
	sent   time.Time
}

const (
	simEndpoints = 5
	simLength    = 24 * time.Second
	simPredicted = 300 * time.Millisecond
)

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0)}
	w.cut, w.rate = w.rng.IntN(4) == 0, 1+2*w.rng.Float64()
	w.faults = make([]simFault, simEndpoints)
	kinds := []string{"hang", "dead", "fail", "some", "refuse", "slow", "reset"}
	for range 1 + w.rng.IntN(2) { // one or two of five have faults
		f := simFault{kind: kinds[w.rng.IntN(len(kinds))], begin: 2*time.Second + time.Duration(w.rng.IntN(2000))*time.Millisecond}
		f.end = f.begin + 5*time.Second + time.Duration(w.rng.IntN(4000))*time.Millisecond
		w.faults[w.rng.IntN(simEndpoints)] = f
	}
	for i := range 1 + w.rng.IntN(3) {
		r := &simReplica{
			name: fmt.Sprint(i), set: NewSet(Options{}), trackers: make([]Tracker, simEndpoints), blind: -1,
			page: make([]time.Time, simEndpoints), probes: make([][3]uint64, simEndpoints),
			met: make([]time.Duration, simEndpoints),
		}
		if i > 0 && w.rng.IntN(3) == 0 {
			r.blind = w.rng.IntN(simEndpoints)
		}
		for id := range simEndpoints {
			r.set.Join(id, "model", w.now)
			r.page[id] = w.now
		}
		w.replicas = append(w.replicas, r)
	}
	return w
}

// fault returns the current fault of an endpoint.
func (w *world) fault(ep int) string {
	f, at := w.faults[ep], w.now.Sub(time.Unix(1000, 0))
	if f.kind != "" && at >= f.begin && at < f.end {
		return f.kind
	}
	return ""
}

// place starts one request of a replica, at an endpoint that its shares allow.
func (w *world) place(r *simReplica) {
	var may []int
	for id := range simEndpoints {
		if uint32(w.rng.IntN(Full)) < r.set.View(id).Share {
			may = append(may, id)
		}
	}
	if len(may) == 0 {
		may = []int{0, 1, 2, 3, 4}
	}
	q := &simRequest{ep: may[w.rng.IntN(len(may))], sent: w.now, gives: w.now.Add(8 * time.Second)}
	took := time.Duration((.5 + w.rng.Float64()) * float64(simPredicted)) // the mean equals the prediction
	q.ends = w.now.Add(took)
	if w.fault(q.ep) != "" && r.met[q.ep] == 0 {
		r.met[q.ep] = w.now.Sub(time.Unix(1000, 0))
	}
	switch w.fault(q.ep) {
	case "hang", "dead":
		q.ends = time.Time{}
	case "slow":
		q.ends = w.now.Add(30 * took)
	case "fail":
		q.ends, q.result = w.now.Add(tick), Failed
	case "refuse", "reset":
		q.ends, q.result = w.now.Add(tick), Broken
	case "some":
		if w.rng.IntN(2) == 0 {
			q.ends, q.result = w.now.Add(tick), Failed
		}
	case "cut": // half of the answers are streamed, and break off in the middle
		if q.cut = w.rng.IntN(2) == 0; q.cut {
			q.ends = w.now.Add(tick)
			if r.trackers[q.ep].SampleAnswer(w.now) {
				q.result = Cut
			}
		}
	case "":
		if !w.calm && w.rng.IntN(400) == 0 {
			q.result = Failed
		}
	}
	r.trackers[q.ep].Begin(&q.Watch, w.now, w.now.Add(time.Second+3*simPredicted))
	r.flying = append(r.flying, q)
}

// land ends the requests that are due.
func (w *world) land(r *simReplica) {
	kept := r.flying[:0]
	for _, q := range r.flying {
		fault := w.fault(q.ep)
		switch {
		case q.ends.IsZero() && fault == "": // a hanging request continues
			q.ends = w.now.Add(simPredicted)
		case fault == "hang" || fault == "dead":
			q.ends = time.Time{}
		case fault == "refuse" || fault == "reset":
			q.ends, q.result = w.now, Broken
		}
		switch {
		case !q.ends.IsZero() && !q.ends.After(w.now):
			if q.result == Cut && !r.trackers[q.ep].Cut(w.rng.Uint64(), w.now) {
				q.result = Void
			}
			q.End(w.now, q.result)
			if q.cut {
				w.cuts = append(w.cuts, q.sent)
			}
		case !q.gives.After(w.now):
			q.End(w.now, Void)
		default:
			kept = append(kept, q)
		}
	}
	r.flying = kept
}

// look reads an endpoint's page, probes it, and receives the others' evidence.
func (w *world) look(i int, r *simReplica) {
	for id := range simEndpoints {
		fault := w.fault(id)
		if fault != "dead" && fault != "refuse" && r.blind != id {
			r.page[id] = w.now
		}
		turn := (id + i) % len(w.replicas)
		if w.cut {
			turn = 0
		}
		if r.set.Probe(id, turn, w.now) {
			if fault == "" || fault == "some" && w.rng.IntN(2) == 0 {
				r.probes[id][0]++
				r.trackers[id].Progress(w.now)
				r.page[id] = w.now
			} else {
				late := 1
				if fault == "fail" || fault == "some" || fault == "refuse" || fault == "reset" || fault == "cut" {
					late = 2
				}
				r.probes[id][late]++
			}
		}
		e := r.trackers[id].Evidence(w.now)
		e.Answered, e.Passed, e.Missed, e.Denied = w.now.Sub(r.page[id]), r.probes[id][0], r.probes[id][1], r.probes[id][2]
		e.Refused = fault == "refuse" || r.blind == id
		r.set.Receive("", id, e, w.now)
		if w.cut {
			continue
		}
		for _, o := range w.replicas {
			if o != r && w.rng.IntN(3) > 0 { // not every message arrives at once
				o.set.Receive(r.name, id, e, w.now)
			}
		}
	}
}

func (w *world) tick() {
	w.now = w.now.Add(tick)
	for _, r := range w.replicas {
		w.land(r)
		for n := w.rate; n > 0; n-- {
			if w.rng.Float64() < n {
				w.place(r)
			}
		}
	}
	for i, r := range w.replicas {
		w.look(i, r)
	}
	for _, r := range w.replicas {
		for _, c := range r.set.Step(w.now) {
			w.log = append(w.log, fmt.Sprintf("%5.1fs replica %s endpoint %d: %s -> %s (%s: %s)",
				w.now.Sub(time.Unix(1000, 0)).Seconds(), r.name, c.ID, c.From, c.To.State, c.To.Cause, c.To.Evidence()))
		}
	}
}

// check returns the violated rules at this moment.
func (w *world) check() string {
	at := w.now.Sub(time.Unix(1000, 0))
	for _, r := range w.replicas {
		usable := 0
		for id := range simEndpoints {
			v, f := r.set.View(id), w.faults[id]
			if r.blind == id && w.cut {
				continue // it receives no report that the endpoint is healthy
			}
			if v.Share > 0 {
				usable++
			}
			switch {
			case f.kind == "" && (v.State == Out || v.State == Probing):
				return fmt.Sprintf("replica %s: endpoint %d is %s (%s: %s) without a fault", r.name, id, v.State, v.Cause, v.Evidence())
			case w.fault(id) != "" && w.fault(id) != "some" && r.met[id] > 0 && at > r.met[id]+4*time.Second && v.Share > 100 && (!v.Overruled || w.troubled(r) <= simEndpoints/2):
				return fmt.Sprintf("replica %s: endpoint %d (%s) has share %d after 4 s", r.name, id, f.kind, v.Share)
			case f.kind != "" && at > f.end+10*time.Second && v.State != Healthy && v.State != Returning && v.State != Suspect:
				return fmt.Sprintf("replica %s: endpoint %d (%s) is %s 10 s after the end", r.name, id, f.kind, v.State)
			}
		}
		if usable == 0 {
			return fmt.Sprintf("replica %s: nobody is left", r.name)
		}
	}
	return ""
}

// troubled counts the endpoints that a replica may exclude with reason.
func (w *world) troubled(r *simReplica) (n int) {
	for id := range simEndpoints {
		if w.fault(id) != "" || w.cut && r.blind == id {
			n++
		}
	}
	return n
}

// numSeeds returns the number of seeds. The simulations have one goroutine, so the race detector gets few.
func numSeeds() uint64 {
	if testkit.Raced {
		return uint64(*seeds) / 20
	}
	return uint64(*seeds)
}

// TestSeeds: replicas with different observations find unhealthy endpoints within seconds,
// reinstate recovered ones, and never eject a healthy one.
func TestSeeds(t *testing.T) {
	var back []time.Duration
	for seed := range numSeeds() {
		w := newWorld(seed)
		returned := map[string]bool{}
		for w.now.Sub(time.Unix(1000, 0)) < simLength {
			w.tick()
			if wrong := w.check(); wrong != "" {
				for _, l := range w.log {
					t.Log(l)
				}
				t.Fatalf("seed %d at %s, %d replicas, cut %v, faults %v: %s", seed, w.now.Sub(time.Unix(1000, 0)), len(w.replicas), w.cut, w.faults, wrong)
			}
			back = w.noteReturns(returned, back)
		}
	}
	within := 0
	for _, d := range back {
		if d <= 5*time.Second {
			within++
		}
	}
	t.Logf("%d seeds: %d returns, %.1f%% within 5 s of the fault's end", *seeds, len(back), 100*float64(within)/float64(max(len(back), 1)))
}

// noteReturns records when endpoints get all requests again after the end of their fault.
func (w *world) noteReturns(done map[string]bool, back []time.Duration) []time.Duration {
	at := w.now.Sub(time.Unix(1000, 0))
	for _, r := range w.replicas {
		for id, f := range w.faults {
			key := fmt.Sprint(r.name, id)
			if f.kind == "" || at < f.end || done[key] || r.set.View(id).Share < Full/2 {
				continue
			}
			done[key] = true
			if at-f.end >= tick { // it was still out when the fault ended
				back = append(back, at-f.end)
			}
		}
	}
	return back
}
