package server

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// hintShare shares decisions: the chunks of prompts that went somewhere
// (speculative entries and the approximate index at once) and where sessions are
// bound. Hints may be lost; nothing waits for them. It is safe for concurrent use.
type hintShare struct {
	s                *Server
	chunks, sessions *cluster.Feed
	queue            chan hint
	dropped          prometheus.Counter
}

// hint is one payload on its way: requests do not wait for the group's lock.
type hint struct {
	feed    *cluster.Feed
	payload []byte
}

const hintQueue = 4096

// chunkSink and sessionSink receive the two feeds.
type (
	chunkSink   struct{ s *Server }
	sessionSink struct{ s *Server }
)

func newHintShare(s *Server) *hintShare {
	h := &hintShare{
		s: s, chunks: s.node.Feed(stateChunks, stateVersion, chunkSink{s}),
		sessions: s.node.Feed(stateSessions, stateVersion, sessionSink{s}), queue: make(chan hint, hintQueue),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_share_hints_dropped_total", Help: "Decisions that were not told to the other replicas because too many waited.",
		}),
	}
	s.registry.MustRegister(h.dropped)
	return h
}

// run sends what is queued.
func (h *hintShare) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-h.queue:
			if !x.feed.Send(x.payload) {
				h.dropped.Inc()
			}
		}
	}
}

func (h *hintShare) send(f *cluster.Feed, payload []byte) {
	select {
	case h.queue <- hint{f, payload}:
	default:
		h.dropped.Inc()
	}
}

// recorded tells the others of one decision.
func (h *hintShare) recorded(ep *endpoint.Endpoint, keys []indexer.BlockKey, at time.Time) {
	b := appendText(make([]byte, 0, 32+len(ep.Address)+8*len(keys)), ep.Address)
	b = binary.AppendVarint(b, int64(time.Since(at)))
	h.send(h.chunks, indexer.AppendKeys(b, keys))
}

// Deliver implements cluster.FeedSink.
func (c chunkSink) Deliver(_ string, _ uint64, payload []byte) error {
	w := wire{b: payload}
	address, age := w.text(maxAddress), w.age()
	if w.bad {
		return errWire
	}
	keys, _, err := indexer.DecodeKeys(w.b, nil)
	if err != nil {
		return err
	}
	if ep := c.s.pool.Snapshot().Lookup(address); ep != nil {
		c.s.approx.Record(ep.ID, keys, time.Now().Add(-age).UnixNano())
	}
	return nil
}

// bound tells the others where a session went.
func (h *hintShare) bound(b picker.Binding) {
	address := ""
	for _, ep := range h.s.pool.Snapshot().Endpoints {
		if ep.ID == b.Endpoint {
			address = ep.Address
			break
		}
	}
	if address == "" {
		return
	}
	p := binary.LittleEndian.AppendUint64(make([]byte, 0, 48), uint64(b.Session))
	p = binary.AppendVarint(p, int64(max(time.Since(b.At), 0)))
	h.send(h.sessions, appendText(p, address))
}

// Deliver implements cluster.FeedSink.
func (c sessionSink) Deliver(_ string, _ uint64, payload []byte) error {
	if len(payload) < 8 {
		return errWire
	}
	key := picker.SessionKey(binary.LittleEndian.Uint64(payload))
	w := wire{b: payload[8:]}
	age, address := w.age(), w.text(maxAddress)
	if w.bad {
		return errWire
	}
	if ep := c.s.pool.Snapshot().Lookup(address); ep != nil {
		c.s.scheduler.Sessions().Merge(picker.Binding{Session: key, Endpoint: ep.ID, At: time.Now().Add(-age)})
	}
	return nil
}
