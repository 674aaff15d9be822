package facts

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// queue records received gauges.
type queue struct {
	own   map[string][]rules.Gauge
	heard map[string][]rules.Gauge // by origin and model

	answer   *rules.Answer
	answered []rules.Answer
}

func (q *queue) Changes(_ bool, tell func(string, []rules.Gauge)) {
	for model, g := range q.own {
		tell(model, g)
	}
}

func (q *queue) Hear(origin, model string, g []rules.Gauge) { q.heard[origin+" "+model] = g }

func (q *queue) Gone(origin string) { delete(q.heard, origin+" m") }

func (q *queue) Answers(tell func(string, rules.Answer)) {
	if q.answer != nil {
		tell("m", *q.answer)
	}
}

func (q *queue) Answered(origin, model string, a rules.Answer) { q.answered = append(q.answered, a) }

func (q *queue) methods() Queue {
	return Queue{Changes: q.Changes, Receive: q.Hear, PeerLeft: q.Gone, Answers: q.Answers, Answered: q.Answered}
}

// TestAnswers: a replica's requests and acknowledgments arrive unchanged, or not at all.
func TestAnswers(t *testing.T) {
	want := rules.Answer{PeerMark: rules.PeerMark{Incarnation: 1 << 63, Mark: 7}, Marks: []rules.PeerMark{{Incarnation: 5, Mark: 1 << 60}, {Incarnation: 6}}}
	a, b := &queue{answer: &want}, &queue{}
	receiver := answers{&Queues{queue: b.methods()}}
	set := func(_ string, _ uint64, sink cluster.GaugeSink) SetFunc {
		return func(key string, value []byte) error {
			if _, ok := sink.(answers); ok {
				return receiver.Merge("a", 1, key, value)
			}
			return nil
		}
	}
	NewQueues(Group{Pulse: set, Gauge: set}, a.methods(), slog.New(slog.DiscardHandler)).Flush(false)
	if diff := cmp.Diff([]rules.Answer{want}, b.answered); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range [][]byte{{1}, {1, 1}, {1, 2, 3}, bytes.Repeat([]byte{1, 2}, maxAnswers+2)} {
		if err := receiver.Merge("a", 1, "m", bad); err == nil {
			t.Errorf("%.6x was decoded as an answer", bad)
		}
	}
	if err := receiver.Merge("a", 1, "m", nil); err != nil || len(b.answered) != 1 {
		t.Error("removed key was decoded as an answer")
	}
}

// TestQueues: a replica's queue gauges arrive at another one.
func TestQueues(t *testing.T) {
	a, b := &queue{own: map[string][]rules.Gauge{}}, &queue{heard: map[string][]rules.Gauge{}}
	told := 0
	receiver := &Queues{queue: b.methods()}
	sender := NewQueues(Group{Pulse: func(string, uint64, cluster.GaugeSink) SetFunc {
		return func(key string, value []byte) error {
			if told++; value == nil { // which would remove the key
				t.Error("empty queue was withdrawn instead of sent")
			}
			return receiver.Merge("a", 1, key, value)
		}
	}, Gauge: func(string, uint64, cluster.GaugeSink) SetFunc { return nil }}, a.methods(), slog.New(slog.DiscardHandler))
	a.own["m"] = nil
	sender.Flush(true)
	if _, ok := b.heard["a m"]; told != 1 || !ok {
		t.Error("empty queue was not sent, although its permits are shared")
	}
	want := []rules.Gauge{{Flow: "tenant", Priority: -3, Requests: 4, Bytes: 5, Waiting: 6, InFlight: 7}, {Flow: "", Priority: 9, InFlight: 1}}
	a.own["m"] = want
	sender.Flush(false)
	if diff := cmp.Diff(want, b.heard["a m"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = []rules.Gauge{{Flow: rules.Name(strings.Repeat("client's", 1<<10)), InFlight: 1}}
	a.own["m"] = want
	sender.Flush(false)
	if diff := cmp.Diff(want, b.heard["a m"]); diff != "" {
		t.Errorf("flow with a long ID (-want +got):\n%s", diff)
	}
	a.own["m"] = nil
	sender.Flush(false)
	if got, ok := b.heard["a m"]; !ok || len(got) != 0 {
		t.Errorf("after the queue became empty: %v", got)
	}
	receiver.Drop("a")
	if len(b.heard) != 0 {
		t.Error("gauges of a departed replica are still in use")
	}
}

// hearing counts received gauges of a stable and of a changing model.
type hearing struct{ still, moving atomic.Int64 }

func (h *hearing) hear(_, model string, _ []rules.Gauge) {
	if model == "still" {
		h.still.Add(1)
	} else {
		h.moving.Add(1)
	}
}

// TestQueuesAreRepeated: gauges are sent repeatedly even if they do not change. A silent replica
// counts as dead.
func TestQueuesAreRepeated(t *testing.T) {
	hub := clustertest.NewHub()
	node := func(name string, q Queue) *Queues {
		self := cluster.NewMember(name, "test")
		n := cluster.New(cluster.Options{Self: self, Bus: hub.Bus(self)})
		s := NewQueues(Of(n), q, slog.New(slog.DiscardHandler))
		if err := n.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return s
	}
	a, b := &queue{own: map[string][]rules.Gauge{"still": {{Flow: "long", InFlight: 1}}}}, &hearing{}
	sender := node("a", a.methods())
	node("b", Queue{Changes: a.Changes, Receive: b.hear, PeerLeft: func(string) {}, Answers: a.Answers})
	for round := range int64(4) {
		a.own["moving"] = []rules.Gauge{{InFlight: round + 1}}
		was := b.moving.Load()
		sender.Flush(true)
		testkit.Await(t, "what moves is heard of", func() bool { return b.moving.Load() > was })
	}
	if n := b.still.Load(); n < 3 { // gauges sent together may arrive one by one
		t.Errorf("stable gauges arrived %d times, changing ones %d times", n, b.moving.Load())
	}
}

// TestManyFlowsAreSummed: with too many flows, the largest are sent individually.
func TestManyFlowsAreSummed(t *testing.T) {
	var gauges []rules.Gauge
	for i := range 2 * maxQueueFlows {
		gauges = append(gauges, rules.Gauge{Flow: fmt.Sprint(i), Waiting: int64(i), Requests: 1, InFlight: 1})
	}
	got, err := readGauges(appendGauges(nil, gauges))
	if err != nil || len(got) != maxQueueFlows+1 {
		t.Fatalf("%d gauges, %v", len(got), err)
	}
	var sum rules.Gauge
	for _, g := range got {
		sum.Waiting, sum.Requests, sum.InFlight = sum.Waiting+g.Waiting, sum.Requests+g.Requests, sum.InFlight+g.InFlight
	}
	n := int64(2 * maxQueueFlows)
	if sum != (rules.Gauge{Waiting: n * (n - 1) / 2, Requests: n, InFlight: n}) {
		t.Errorf("sum %+v", sum)
	}
}

// FuzzGauges: any input is an error or decodes to gauges that can be encoded again.
func FuzzGauges(f *testing.F) {
	f.Add(appendGauges(nil, []rules.Gauge{{Flow: "a", Priority: -1, Requests: 2, Bytes: 3, Waiting: 4, InFlight: 5}}))
	f.Add([]byte{1})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		list, err := readGauges(b)
		if err != nil {
			return
		}
		if len(list) > 2*maxQueueFlows+1 {
			t.Fatalf("%d gauges of %d bytes", len(list), len(b))
		}
		again, err := readGauges(appendGauges(nil, list[:min(len(list), maxQueueFlows)]))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(list[:min(len(list), maxQueueFlows)], again); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
