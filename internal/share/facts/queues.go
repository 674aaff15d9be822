package facts

import (
	"cmp"
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Timing and limits of Queues.
const (
	queueDelay = 20 * time.Millisecond
	queueBeat  = 250 * time.Millisecond // while requests wait or are in flight: silence counts as failure
	// maxQueueFlows is the number of a pool's flows that are sent individually. The rest are
	// summed.
	maxQueueFlows = 256
	restOfFlows   = "(others)"
	maxFlowName   = 1024
	maxAnswers    = 1024 // replicas
)

// Queue is the local queue: methods of picker/flow/gate.Gate.
type Queue struct {
	Changes  func(all bool, tell func(model string, gauges []rules.Gauge))
	Receive  func(origin, model string, gauges []rules.Gauge)
	PeerLeft func(origin string)

	// Acknowledgments of other replicas' gauges.
	Answers  func(tell func(model string, a rules.Answer))
	Answered func(origin, model string, a rules.Answer)

	Dirty <-chan struct{} // receives when Changes or Answers may have something to send
	Watch *watchdog.Loop  // of Queues.Run; nil: not watched
}

// Queues shares queued and in-flight requests by flow: absolute gauges, written by each replica for
// itself, and acknowledgments of other replicas' gauges. Safe for concurrent use.
type Queues struct {
	queue  Queue
	set    SetFunc
	answer SetFunc
	log    *slog.Logger
}

// NewQueues returns a Queues. It sends nothing before Run.
func NewQueues(g Group, q Queue, log *slog.Logger) *Queues {
	s := &Queues{queue: q, log: log}
	s.set = g.Pulse(stateQueues, StateVersion, s)
	s.answer = g.Gauge(stateAnswers, StateVersion, answers{s}) // registered second, because flushes follow this order
	return s
}

// Run sends changes until ctx ends: at most one frame within queueDelay, and nothing while no request
// waits or is in flight.
func (s *Queues) Run(ctx context.Context) {
	beat := time.NewTimer(queueBeat)
	defer beat.Stop()
	var sent, whole time.Time // last frame, and last frame with unchanged gauges
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.queue.Dirty:
			if !pause(ctx, queueDelay-time.Since(sent)) {
				return
			}
		case <-beat.C:
		}
		s.queue.Watch.Working()
		sent = time.Now()
		all := sent.Sub(whole) >= queueBeat
		if all {
			whole = sent
		}
		if s.Flush(all) {
			beat.Reset(queueBeat - sent.Sub(whole))
		}
		s.queue.Watch.Waiting()
	}
}

// pause waits for d and returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Flush sends changes, and reports whether there were any. If all is true it also sends unchanged
// gauges, to show that this replica is alive.
func (s *Queues) Flush(all bool) (sent bool) {
	s.queue.Changes(all, func(model string, gauges []rules.Gauge) {
		sent = true
		// An empty queue is sent too: replicas that share its permits must be known before they are
		// requested.
		if err := s.set(model, appendGauges([]byte{}, gauges)); err != nil {
			s.log.Warn("queues not shared", "model", model, "error", err)
		}
	})
	s.queue.Answers(func(model string, a rules.Answer) {
		if err := s.answer(model, appendAnswer(nil, a)); err != nil {
			s.log.Warn("queue acknowledgments not shared", "model", model, "error", err)
		}
	})
	return sent
}

// answers is the sink for acknowledgments.
type answers struct{ s *Queues }

// Merge implements cluster.GaugeSink.
func (t answers) Merge(origin string, _ uint64, model string, value []byte) error {
	if len(value) == 0 {
		return nil
	}
	a, err := readAnswer(value)
	if err != nil {
		return err
	}
	t.s.queue.Answered(origin, model, a)
	return nil
}

// Drop implements cluster.GaugeSink. A departed replica is dropped with its gauges.
func (t answers) Drop(string) {}

func appendAnswer(b []byte, a rules.Answer) []byte {
	for _, h := range append([]rules.PeerMark{a.PeerMark}, a.Marks...) {
		b = binary.AppendUvarint(b, h.Incarnation)
		b = binary.AppendVarint(b, h.Mark)
	}
	return b
}

func readAnswer(b []byte) (a rules.Answer, err error) {
	c := varint.Reader{B: b}
	for n := 0; len(c.B) > 0 && c.Err == nil && n <= maxAnswers; n++ {
		h := rules.PeerMark{Incarnation: c.Uint(), Mark: c.Natural()}
		if n == 0 {
			a.PeerMark = h
		} else {
			a.Marks = append(a.Marks, h)
		}
	}
	if c.Err != nil || len(c.B) > 0 {
		return rules.Answer{}, errWire
	}
	return a, nil
}

// Merge implements cluster.GaugeSink.
func (s *Queues) Merge(origin string, _ uint64, model string, value []byte) error {
	gauges, err := readGauges(value)
	if err != nil {
		return err
	}
	s.queue.Receive(origin, model, gauges)
	return nil
}

// Drop implements cluster.GaugeSink.
func (s *Queues) Drop(origin string) { s.queue.PeerLeft(origin) }

func appendGauges(b []byte, gauges []rules.Gauge) []byte {
	if len(gauges) > maxQueueFlows {
		slices.SortFunc(gauges, func(x, y rules.Gauge) int { return cmp.Compare(y.Waiting+y.InFlight, x.Waiting+x.InFlight) })
		rest := map[int]rules.Gauge{}
		for _, g := range gauges[maxQueueFlows:] {
			r := rest[g.Priority]
			r.Flow, r.Priority = restOfFlows, g.Priority
			r.Requests, r.Bytes = r.Requests+g.Requests, r.Bytes+g.Bytes
			r.Waiting, r.InFlight = r.Waiting+g.Waiting, r.InFlight+g.InFlight
			rest[g.Priority] = r
		}
		gauges = gauges[:maxQueueFlows:maxQueueFlows]
		for _, r := range rest {
			gauges = append(gauges, r)
		}
	}
	for _, g := range gauges {
		b = binary.AppendUvarint(b, uint64(len(g.Flow)))
		b = append(b, g.Flow...)
		for _, v := range [...]int64{int64(g.Priority), g.Requests, g.Bytes, g.Waiting, g.InFlight} {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

func readGauges(b []byte) ([]rules.Gauge, error) {
	c := varint.Reader{B: b}
	var list []rules.Gauge
	for len(c.B) > 0 && c.Err == nil && len(list) <= 2*maxQueueFlows {
		var g rules.Gauge
		name := c.Bytes()
		if len(name) > maxFlowName {
			return nil, errWire
		}
		g.Flow, g.Priority = string(name), int(c.Int())
		g.Requests, g.Bytes, g.Waiting, g.InFlight = c.Natural(), c.Natural(), c.Natural(), c.Natural()
		list = append(list, g)
	}
	if c.Err != nil || len(c.B) > 0 {
		return nil, errWire
	}
	return list, nil
}
