package zmtp

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PubOptions configure a PUB socket.
type PubOptions struct {
	// HWM is the number of messages that may wait for one subscriber. Further messages are dropped
	// for that subscriber without notice, as in libzmq. Default 100,000.
	HWM int
	// MaxQueued bounds the bytes that wait for one subscriber; default 256 MiB.
	MaxQueued int
	// Linger is how long Close waits for queues to drain; default 0.
	Linger time.Duration
	// Handshake bounds each peer's greeting; default 3 s.
	Handshake time.Duration
	// MaxConns bounds the subscribers; default 4096.
	MaxConns int
}

// Pub is a bound PUB socket. All methods are safe for concurrent use.
type Pub struct {
	opt     PubOptions
	l       *listener
	mu      sync.Mutex
	subs    []*subscriber
	dropped atomic.Uint64
}

// ListenPub binds a PUB socket to addr, "tcp://127.0.0.1:0" or the like.
func ListenPub(addr string, opt PubOptions) (*Pub, error) {
	if opt.HWM <= 0 {
		opt.HWM = 100_000
	}
	if opt.MaxQueued <= 0 {
		opt.MaxQueued = 256 << 20
	}
	p := &Pub{opt: opt}
	p.l = &listener{
		self: PUB, handshake: opt.Handshake, maxConns: opt.MaxConns, serve: p.serve,
		limits: Limits{Frame: maxCommand, Message: maxCommand, Frames: 1},
	}
	if err := listen(addr, p.l); err != nil {
		return nil, fmt.Errorf("zmtp: listen %s: %w", addr, err)
	}
	return p, nil
}

// Addr returns the bound address.
func (p *Pub) Addr() net.Addr { return p.l.ln.Addr() }

// Subscribers returns the number of connected peers with at least one
// subscription.
func (p *Pub) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.subs {
		if s.topics() > 0 {
			n++
		}
	}
	return n
}

// Dropped returns the messages dropped so far at the high-water mark, counted
// per subscriber.
func (p *Pub) Dropped() uint64 { return p.dropped.Load() }

// Send queues one message for every subscriber whose prefix matches the first
// frame. It never blocks on a peer. The frames are copied.
func (p *Pub) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return fmt.Errorf("%w: message without frames", ErrProtocol)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var wire []byte
	for _, s := range p.subs {
		if !s.wants(frames[0]) {
			continue
		}
		if wire == nil {
			wire = appendMessage(make([]byte, 0, wireSize(frames)), frames)
		}
		if !s.push(wire) {
			p.dropped.Add(1)
		}
	}
	return nil
}

func wireSize(frames [][]byte) int {
	n := 0
	for _, f := range frames {
		n += 9 + len(f)
	}
	return n
}

// Close waits up to PubOptions.Linger for queues to drain, then closes every
// connection and waits for its goroutines.
func (p *Pub) Close() error {
	for end := time.Now().Add(p.opt.Linger); p.queued() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return p.l.close()
}

func (p *Pub) queued() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.subs, (*subscriber).busy)
}

// serve runs one subscriber: this goroutine reads its subscriptions and
// pings, a second one writes.
func (p *Pub) serve(nc net.Conn, r *reader) {
	s := &subscriber{nc: nc, hwm: p.opt.HWM, maxBytes: p.opt.MaxQueued}
	s.ready.L = &s.mu
	p.mu.Lock()
	p.subs = append(p.subs, s)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); s.write() }()
	var m Message
	for s.read(r, &m) == nil {
	}
	p.mu.Lock()
	p.subs = slices.DeleteFunc(p.subs, func(o *subscriber) bool { return o == s })
	p.mu.Unlock()
	s.stop()
	_ = nc.Close()
	<-done
}

const (
	maxTopics     = 1024 // prefixes of one subscriber
	writeMessages = 256  // messages handed to one write
)

// subscriber is one peer of a Pub.
type subscriber struct {
	nc       net.Conn
	hwm      int
	maxBytes int

	mu      sync.Mutex
	ready   sync.Cond
	queue   [][]byte // encoded messages; shared between subscribers, never written to
	waiting int      // messages queued or handed to write and not yet written
	bytes   int      // of them
	closed  bool
	subs    [][]byte // prefixes, one entry per subscription
}

func (s *subscriber) topics() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs)
}

func (s *subscriber) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.waiting > 0
}

func (s *subscriber) wants(topic []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.subs {
		if bytes.HasPrefix(topic, p) {
			return true
		}
	}
	return false
}

// push queues one encoded message; false means that it was dropped.
func (s *subscriber) push(wire []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	if s.waiting >= s.hwm || s.bytes+len(wire) > s.maxBytes {
		return false
	}
	s.queue = append(s.queue, wire)
	s.waiting++
	s.bytes += len(wire)
	s.ready.Signal()
	return true
}

func (s *subscriber) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.ready.Signal()
}

// write sends queued messages until the subscriber stops or its socket fails.
func (s *subscriber) write() {
	var queue [][]byte
	var batch net.Buffers
	for {
		if queue = s.take(queue); queue == nil {
			return
		}
		for rest := queue; len(rest) > 0; {
			n := min(len(rest), writeMessages)
			batch = append(batch[:0], rest[:n]...)
			out := batch // WriteTo consumes its receiver
			size, err := out.WriteTo(s.nc)
			if err != nil {
				_ = s.nc.Close() // ends the reading side, which unregisters
				return
			}
			s.written(n, int(size))
			rest = rest[n:]
		}
		clear(queue)
	}
}

// take waits for messages and returns all; nil means stop. The slice returned last time becomes the
// new queue.
func (s *subscriber) take(last [][]byte) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.ready.Wait()
	}
	if s.closed {
		return nil
	}
	full := s.queue
	s.queue = last[:0]
	return full
}

func (s *subscriber) written(messages, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting -= messages
	s.bytes -= size
}

// read handles one message of the peer: a subscription, or its cancellation.
func (s *subscriber) read(r *reader, m *Message) error {
	if err := r.next(m, s.command); err != nil {
		return err
	}
	if m.Len() != 1 || len(m.Frame(0)) == 0 {
		return nil // other messages have no meaning for a PUB
	}
	f := m.Frame(0)
	switch f[0] {
	case subAdd:
		return s.subscribe(f[1:])
	case subCancel:
		s.cancel(f[1:])
	}
	return nil
}

func (s *subscriber) command(body []byte) error {
	name, data, err := splitCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case cmdPing:
		if len(data) < 2 {
			return ErrProtocol
		}
		s.push(appendPong(nil, data))
	case cmdSubscribe:
		return s.subscribe(data)
	case cmdCancel:
		s.cancel(data)
	}
	return nil
}

func (s *subscriber) subscribe(topic []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) >= maxTopics {
		return fmt.Errorf("%w: more than %d subscriptions", ErrTooLarge, maxTopics)
	}
	s.subs = append(s.subs, bytes.Clone(topic))
	return nil
}

func (s *subscriber) cancel(topic []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.subs, func(p []byte) bool { return bytes.Equal(p, topic) })
	if i >= 0 {
		s.subs = slices.Delete(s.subs, i, i+1)
	}
}
