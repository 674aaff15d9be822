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
	"github.com/grapevine-epp/grapevine/cluster/core"
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

	// gate is held for reading by deliveries, for writing by Close.
	gate   sync.RWMutex
	closed bool
	view   sync.Mutex // one announcement at a time

	mu      sync.Mutex
	seq     uint64
	roster  *roster
	refused map[string]uint64
	lastErr error
	slow    uint64 // messages that the client dropped because we were slow
	unsent  uint64 // messages that the client did not take
	leaving bool
}

// outgoing is a message to be published.
type outgoing struct {
	subject string
	frame   []byte
}

// New checks the options.
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
		refused: map[string]uint64{}, beatNow: make(chan struct{}, 1),
	}, nil
}

// Subjects, below prefix and group.
const (
	subjectBeat = "hb"
	subjectAll  = "all"
	subjectTo   = "to"
)

func (b *Bus) subject(parts ...string) string {
	return strings.Join(append([]string{b.opt.Prefix, b.opt.Group}, parts...), ".")
}

func (b *Bus) inbox(id string) string {
	return b.subject(subjectTo, base64.RawURLEncoding.EncodeToString([]byte(id)))
}

// Open connects and joins. A server that cannot be reached is tried for as
// long as the Bus is open; credentials that are refused are an error.
func (b *Bus) Open(ctx context.Context, h cluster.Handler) error {
	b.handler = h
	conn, err := nats.Connect(strings.Join(b.opt.URLs, ","), b.connOptions()...)
	if err != nil {
		return fmt.Errorf("natsbus: %w", err)
	}
	b.conn = conn
	for subject, fn := range map[string]nats.MsgHandler{
		b.subject(subjectBeat): b.onBeat,
		b.subject(subjectAll):  b.onFrame,
		b.inbox(b.opt.Self.ID): b.onFrame,
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

func (b *Bus) connOptions() []nats.Option {
	opts := []nats.Option{
		nats.Name("grapevine " + b.opt.Self.ID), nats.NoEcho(), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // what could not be sent is stale later
		nats.Timeout(2 * time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.reconnected() }),
		nats.ErrorHandler(b.asyncError),
	}
	if b.opt.TLS != nil {
		opts = append(opts, nats.Secure(b.opt.TLS))
	}
	if b.opt.Credentials != "" {
		opts = append(opts, nats.UserCredentials(b.opt.Credentials))
	}
	if b.opt.NKey != "" {
		opts = append(opts, func(o *nats.Options) error {
			key, err := nats.NkeyOptionFromSeed(b.opt.NKey)
			if err != nil {
				return err
			}
			return key(o)
		})
	}
	if b.opt.User != "" {
		opts = append(opts, nats.UserInfo(b.opt.User, b.opt.Password))
	}
	if b.opt.Token != "" {
		opts = append(opts, nats.Token(b.opt.Token))
	}
	return opts
}

// disconnected takes every link down: nothing can be sent, to anybody.
func (b *Bus) disconnected(err error) {
	b.mu.Lock()
	if err != nil {
		b.lastErr = err
	}
	b.mu.Unlock()
	b.opt.Logger.Warn("connection to nats lost", "error", err)
	b.announce()
}

// announce hands the members on, and whether they can be reached. One call at
// a time, so that the latest word is the last.
func (b *Bus) announce() {
	b.view.Lock()
	defer b.view.Unlock()
	b.mu.Lock()
	members := b.roster.list()
	b.mu.Unlock()
	up := b.conn.IsConnected()
	b.deliver(func() {
		b.handler.Members(members)
		for _, m := range members {
			b.handler.Link(m.ID, up)
		}
	})
}

func (b *Bus) reconnected() {
	b.mu.Lock()
	b.lastErr = nil
	b.roster.refresh(time.Now())
	b.mu.Unlock()
	b.opt.Logger.Info("connected to nats", "url", b.conn.ConnectedUrlRedacted())
	b.announce()
	select {
	case b.beatNow <- struct{}{}:
	default:
	}
}

func (b *Bus) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.slow++
		return
	}
	b.lastErr = err
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
func (b *Bus) Send(e core.Envelope) {
	if len(e.To) == 1 {
		b.queue.Push(e.Class, outgoing{b.inbox(e.To[0]), e.Frame}, len(e.Frame))
		return
	}
	// Who is not meant by a frame for several ignores what it knows.
	b.queue.Push(e.Class, outgoing{b.subject(subjectAll), e.Frame}, len(e.Frame))
}

// publish sends what waits.
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

func (b *Bus) publishOne(subject string, content []byte) {
	if err := b.conn.Publish(subject, b.sealer.seal(subject, content)); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unsent++
	}
}

// beat publishes heartbeats and removes who is silent.
func (b *Bus) beat(ctx context.Context) {
	t := time.NewTicker(b.opt.Heartbeat)
	defer t.Stop()
	for {
		b.sendBeat(false)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.beatNow:
		}
		if !b.conn.IsConnected() {
			continue // nobody can be heard, which says nothing about them
		}
		b.mu.Lock()
		changed := b.roster.expire(time.Now().Add(-silent * b.opt.Heartbeat))
		b.mu.Unlock()
		if changed {
			b.announce()
		}
	}
}

func (b *Bus) sendBeat(bye bool) {
	b.mu.Lock()
	if b.leaving && !bye {
		b.mu.Unlock()
		return
	}
	b.leaving = bye
	b.seq++
	h := heartbeat{Seq: b.seq, Bye: bye, Name: b.opt.Self.Name, Version: b.opt.Self.Version, Addr: b.conn.ConnectedAddr()}
	b.mu.Unlock()
	b.publishOne(b.subject(subjectBeat), h.append(nil))
}

func (b *Bus) onBeat(msg *nats.Msg) {
	m, ok := b.opened(msg)
	if !ok {
		return
	}
	h, err := parseHeartbeat(m.Content)
	if err != nil {
		b.count("frame")
		return
	}
	b.mu.Lock()
	_, known := b.roster.members[m.From]
	changed := b.roster.hear(m.From, m.Boot, h, time.Now())
	b.mu.Unlock()
	if !changed {
		return
	}
	b.announce()
	if !known { // let a newcomer see us at once
		select {
		case b.beatNow <- struct{}{}:
		default:
		}
	}
}

func (b *Bus) onFrame(msg *nats.Msg) {
	m, ok := b.opened(msg)
	if !ok || m.From == b.opt.Self.ID {
		return
	}
	b.mu.Lock()
	from := b.roster.members[m.From]
	known := from != nil && from.Boot == m.Boot
	b.mu.Unlock()
	if !known {
		b.count("identity")
		return
	}
	b.deliver(func() { b.handler.Receive(m.From, m.Content) })
}

// opened opens a message, or counts why it could not.
func (b *Bus) opened(msg *nats.Msg) (message, bool) {
	m, err := b.sealer.open(msg.Subject, msg.Data)
	switch {
	case err == nil:
		return m, true
	case errors.Is(err, errClear):
		b.count("plaintext")
	case errors.Is(err, errMessage):
		b.count("frame")
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

// SetKeys changes the keys while the member runs. To replace a key, give every
// member {old, new}, then {new, old}, then {new}.
func (b *Bus) SetKeys(keys [][]byte) error {
	if (len(keys) == 0) != (len(b.opt.Keys) == 0) {
		return errors.New("natsbus: sealing cannot be turned on or off while running")
	}
	return b.sealer.setKeys(keys)
}

// Leave says goodbye.
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

// Close ends the connection.
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

// Status says how the bus is.
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
		s.Problem = fmt.Sprintf("not connected to nats (%s)", strings.Join(b.opt.URLs, ", "))
		if err := b.conn.LastError(); err != nil {
			s.Problem += ": " + err.Error()
		}
	}
	q := cluster.Queue{Peer: "nats"}
	q.Frames, q.Bytes, q.Dropped = b.queue.Stats()
	q.Dropped += b.unsent
	s.Queues = []cluster.Queue{q}
	return s
}
