package facts

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// HintOptions configure Hints. All fields except Registry are required.
type HintOptions struct {
	Group    Group
	Pool     *endpoint.Pool
	Sessions *sessions.Table
	Blame    *health.Prompts
	// Record records the chunks of a prompt that another replica sent to ep.
	Record   func(ep block.EndpointID, keys []block.Key, at int64)
	Now      func() time.Time
	Registry prometheus.Registerer
}

// Hints shares decisions: the chunks of placed prompts (for speculative entries and the approximate
// index), bindings of sessions, failed prompts, and outcomes of split requests. Hints may be lost, and no code waits for one.
// Safe for concurrent use.
type Hints struct {
	o                HintOptions
	chunks, sessions SendFunc
	verdicts, splits SendFunc
	queue            chan hint
	dropped          prometheus.Counter
}

// hint is one queued payload. The queue keeps requests from waiting for the group's lock.
type hint struct {
	send    SendFunc
	payload []byte
}

// hintQueue is the maximum number of queued hints.
const hintQueue = 4096

// chunkSink and sessionSink receive the two feeds.
type (
	chunkSink   struct{ *Hints }
	sessionSink struct{ *Hints }
)

// NewHints returns Hints that queue up to 4,096 decisions. Run sends them.
func NewHints(o HintOptions) *Hints {
	h := &Hints{
		o: o, queue: make(chan hint, hintQueue),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_share_hints_dropped_total", Help: "Decisions not sent to the other replicas because the queue was full.",
		}),
	}
	h.chunks = o.Group.Feed(stateChunks, StateVersion, chunkSink{h})
	h.verdicts = o.Group.Feed(stateVerdicts, StateVersion, blameSink{h})
	h.splits = o.Group.Feed(stateSplits, StateVersion, splitSink{h})
	h.sessions = o.Group.Feed(stateSessions, StateVersion, sessionSink{h})
	if o.Registry != nil {
		o.Registry.MustRegister(h.dropped)
	}
	return h
}

// Run sends queued hints until ctx ends.
func (h *Hints) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-h.queue:
			h.send(x)
		}
	}
}

// Flush sends the hints that are queued now.
func (h *Hints) Flush() {
	for {
		select {
		case x := <-h.queue:
			h.send(x)
		default:
			return
		}
	}
}

func (h *Hints) send(x hint) {
	if !x.send(x.payload) {
		h.dropped.Inc()
	}
}

func (h *Hints) add(send SendFunc, payload []byte) {
	select {
	case h.queue <- hint{send, payload}:
	default:
		h.dropped.Inc()
	}
}

// Recorded queues a hint about one placed prompt.
func (h *Hints) Recorded(ep *endpoint.Endpoint, keys []block.Key, at time.Time) {
	b := appendText(make([]byte, 0, 32+len(ep.Address)+8*len(keys)), ep.Address)
	b = binary.AppendVarint(b, int64(max(h.o.Now().Sub(at), 0)))
	h.add(h.chunks, wire.AppendKeys(b, keys))
}

// Deliver implements cluster.FeedSink.
func (s chunkSink) Deliver(_ string, _ uint64, payload []byte) error {
	c := varint.Reader{B: payload}
	address, age := readText(&c, maxAddress), readAge(&c)
	if c.Err != nil {
		return errWire
	}
	keys, _, err := wire.DecodeKeys(c.B, nil)
	if err != nil {
		return err
	}
	if ep := s.o.Pool.Snapshot().Lookup(address); ep != nil {
		s.o.Record(ep.ID, keys, s.o.Now().Add(-age).UnixNano())
	}
	return nil
}

// Bound queues a hint about a session's binding.
func (h *Hints) Bound(b sessions.Binding) {
	address := h.address(int(b.Endpoint))
	if address == "" {
		return
	}
	p := binary.LittleEndian.AppendUint64(make([]byte, 0, 48), uint64(b.Session))
	p = binary.AppendVarint(p, int64(max(h.o.Now().Sub(b.At), 0)))
	h.add(h.sessions, appendText(p, address))
}

// Deliver implements cluster.FeedSink.
func (s sessionSink) Deliver(_ string, _ uint64, payload []byte) error {
	c := varint.Reader{B: payload}
	key := sessions.Key(c.Fixed64())
	age, address := readAge(&c), readText(&c, maxAddress)
	if c.Err != nil {
		return errWire
	}
	if ep := s.o.Pool.Snapshot().Lookup(address); ep != nil {
		s.o.Sessions.Merge(sessions.Binding{Session: key, Endpoint: ep.ID, At: s.o.Now().Add(-age)})
	}
	return nil
}
