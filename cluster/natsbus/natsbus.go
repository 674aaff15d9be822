package natsbus

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/internal/outbox"
)

// Bus is a cluster.Bus over NATS.
type Bus struct {
	opt     Options
	sealer  *sealer
	conn    *nats.Conn
	handler cluster.Handler
	queue   *outbox.Queue[outgoing]
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	beatNow chan struct{}

	// Deliveries hold gate for reading, Close for writing.
	gate   sync.RWMutex
	closed bool
	view   sync.Mutex // serializes announcements; guards linked
	linked []string   // members in the last announcement, by ID
	order  sync.Mutex // serializes publishing

	mu      sync.Mutex
	seq     uint64
	roster  *roster
	refused map[string]uint64
	lastErr error
	lostErr error  // why the server cannot be reached; the client forgets it during each attempt
	slow    uint64 // messages dropped by the client because this member was slow
	unsent  uint64 // messages that the client did not accept
	leaving bool
	waiting map[process]time.Time // unproven processes, and since when they have been heard
	old     oldRelease
}

// outgoing is a message to publish.
type outgoing struct {
	subject string
	frame   []byte
}

// New validates the options.
func New(opt Options) (*Bus, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := newSealer(opt.Self.ID, opt.Self.Boot, opt.Keys)
	if err != nil {
		return nil, err
	}
	return &Bus{
		opt: opt, sealer: s, queue: outbox.New[outgoing](opt.QueueBytes), roster: newRoster(opt.Self.ID),
		refused: map[string]uint64{}, waiting: map[process]time.Time{}, beatNow: make(chan struct{}, 1),
	}, nil
}

// Subjects, below prefix and group.
const (
	subjectBeat = "hb"
	subjectAll  = "all"
	subjectTo   = "to"
	subjectAsk  = "ask"
)

func (b *Bus) subject(parts ...string) string {
	return strings.Join(append([]string{b.opt.Prefix, b.opt.Group}, parts...), ".")
}

func (b *Bus) inbox(id string) string {
	return b.subject(subjectTo, base64.RawURLEncoding.EncodeToString([]byte(id)))
}

func (b *Bus) proofSubject(id string) string {
	return b.subject(subjectAsk, base64.RawURLEncoding.EncodeToString([]byte(id)))
}

// Open connects and joins. While the Bus is open, it retries an unreachable server, which Status
// shows. It fails if a server is reachable but rejects this member or cannot be verified.
func (b *Bus) Open(ctx context.Context, h cluster.Handler) error {
	b.handler = h
	conn, err := b.connect()
	if err != nil {
		return err
	}
	b.conn = conn
	for subject, fn := range map[string]nats.MsgHandler{
		b.subject(subjectBeat):        b.onBeat,
		b.subject(subjectAll):         b.onFrame,
		b.inbox(b.opt.Self.ID):        b.onFrame,
		b.proofSubject(b.opt.Self.ID): b.onProof,
	} {
		sub, err := conn.Subscribe(subject, fn)
		if err == nil {
			err = sub.SetPendingLimits(1<<16, 64<<20)
		}
		if err != nil {
			conn.Close()
			return fmt.Errorf("natsbus: subscribing %s: %w", subject, err)
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel = cancel
	b.queue.SetOpen(true)
	b.wg.Go(func() { b.publish(run) })
	b.wg.Go(func() { b.beat(run) })
	b.opt.Logger.Info("cluster member", "id", b.opt.Self.ID, "nats", conn.ConnectedUrlRedacted(),
		"group", b.opt.Group, "encrypted", len(b.opt.Keys) > 0)
	return nil
}

// deliver runs fn unless the Bus is closed.
func (b *Bus) deliver(fn func()) {
	b.gate.RLock()
	defer b.gate.RUnlock()
	if !b.closed {
		fn()
	}
}

// Send queues a frame.
func (b *Bus) Send(e cluster.Envelope) {
	if len(e.To) == 1 {
		b.queue.Push(e.Class, outgoing{b.inbox(e.To[0]), e.Frame}, len(e.Frame))
		return
	}
	// Receivers that an envelope for several members does not name get the frame too and ignore it.
	b.queue.Push(e.Class, outgoing{b.subject(subjectAll), e.Frame}, len(e.Frame))
}

// publish sends queued messages.
func (b *Bus) publish(ctx context.Context) {
	for {
		var next outgoing
		if b.queue.Pop(func(o outgoing) bool { next = o; return false }) {
			b.publishOne(next.subject, next.frame)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-b.queue.Ready():
		}
	}
}

// publishOne publishes a message. Messages are published in the order of their numbers.
func (b *Bus) publishOne(subject string, content []byte) {
	b.order.Lock()
	defer b.order.Unlock()
	if err := b.conn.Publish(subject, b.sealer.seal(subject, content)); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unsent++
	}
}

func (b *Bus) onFrame(msg *nats.Msg) {
	m, ok := b.opened(msg, 0)
	if !ok || m.From == b.opt.Self.ID {
		return
	}
	b.mu.Lock()
	from := b.roster.members[m.From]
	known := from != nil && from.Boot == m.Boot && !m.Unproven
	b.mu.Unlock()
	if !known {
		b.count("identity")
		return
	}
	b.deliver(func() { b.handler.Receive(m.From, m.Content) })
}

// maxUnproven limits the size of heartbeats and proofs of unproven processes.
const maxUnproven = 4 << 10

// opened opens a message, or counts the reason why it could not. A message of an unproven process
// may have at most unheard bytes.
func (b *Bus) opened(msg *nats.Msg, unheard int) (message, bool) {
	m, err := b.sealer.open(msg.Subject, msg.Data, unheard)
	switch {
	case err == nil:
		return m, true
	case errors.Is(err, errClear):
		b.count("plaintext")
	case errors.Is(err, errMessage):
		b.count("frame")
	case errors.Is(err, errReplay):
		b.count("replay")
	case errors.Is(err, errAgain):
		b.count(refusedRepeated)
	case errors.Is(err, errEarly), errors.Is(err, errUnproven): // in transit before the proof, or replayed
		b.unproven(process{m.From, m.Boot})
	default:
		b.count("key")
	}
	return m, false
}

func (b *Bus) count(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[reason]++
}

// SetKeys changes the keys while the member runs. To rotate a key, give every member {old, new},
// then {new, old}, then {new}.
func (b *Bus) SetKeys(keys [][]byte) error {
	if (len(keys) == 0) != (len(b.opt.Keys) == 0) {
		return errors.New("natsbus: sealing cannot be turned on or off while running")
	}
	return b.sealer.setKeys(keys)
}

// Leave publishes a goodbye.
func (b *Bus) Leave(ctx context.Context) error {
	b.sendBeat(true)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
	if err := b.conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("natsbus: leaving: %w", err)
	}
	return nil
}

// Close closes the connection.
func (b *Bus) Close() error {
	b.gate.Lock()
	was := b.closed
	b.closed = true
	b.gate.Unlock()
	if was || b.cancel == nil {
		return nil
	}
	b.cancel()
	b.conn.Close()
	b.wg.Wait()
	return nil
}

// Status returns the state of the bus.
func (b *Bus) Status() cluster.BusStatus {
	s := cluster.BusStatus{Kind: "nats", Encrypted: len(b.opt.Keys) > 0, Joining: true}
	if b.conn == nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Refused = maps.Clone(b.refused)
	if b.slow > 0 {
		s.Refused["slow"] = b.slow
	}
	s.Advertised = b.conn.ConnectedUrlRedacted()
	if b.lastErr != nil {
		s.JoinError = b.lastErr.Error()
	}
	if !b.conn.IsConnected() {
		s.Disconnected = true
		s.Problem = fmt.Sprintf("not connected to nats (%s)", redacted(b.opt.URLs))
		if err := b.conn.LastError(); err != nil {
			b.lostErr = err
		}
		if b.lostErr != nil {
			s.Problem += ": " + b.lostErr.Error()
		}
	}
	if most := b.conn.MaxPayload(); b.conn.IsConnected() && most < needPayload {
		s.Problem = fmt.Sprintf("nats takes messages of at most %d bytes and the group sends up to %d: raise max_payload of the servers", most, needPayload)
	}
	q := cluster.Queue{Peer: "nats"}
	q.Frames, q.Bytes, q.Dropped = b.queue.Stats()
	q.Dropped += b.unsent
	s.Queues = []cluster.Queue{q}
	return s
}
