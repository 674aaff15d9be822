package kvstream

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/events/zmtp"
)

// Options configure a Publisher.
type Options struct {
	Addr       string // host:port of the PUB socket; port 0 picks one
	ReplayAddr string // host:port of the replay socket; empty for none
	Topic      string
	Ring       int    // batches kept for replay; default 10,000
	HWM        int    // messages queued per subscriber; default 100,000
	ShortReply bool   // replies without a topic frame, as vLLM up to 0.25
	FirstSeq   uint64 // sequence number of the first batch
}

// Faults are the faults of a Publisher; the zero value has none. Shares are probabilities per
// batch, from 0 to 1.
type Faults struct {
	Drop        float64       `json:"drop"`         // share of live batches that are not sent
	DropNext    int           `json:"drop_next"`    // number of following live batches that are not sent
	Duplicate   float64       `json:"duplicate"`    // share sent twice
	Delay       time.Duration `json:"delay"`        // delay of live batches, which keep their order
	ReplayOff   bool          `json:"replay_off"`   // replay requests are not answered
	ReplayHoles float64       `json:"replay_holes"` // share of replayed batches that are left out
}

// Stats counts batches.
type Stats struct {
	Published, Sent, Dropped, Duplicated uint64
	Replays, Replayed                    uint64
	NextSeq                              uint64
	Subscribers                          int
}

// Publisher publishes the events of one engine core: PUB socket, ring and replay socket.
type Publisher struct {
	opt    Options
	pub    *zmtp.Pub
	router *zmtp.Router // nil without replay

	mu     sync.Mutex
	seq    uint64
	ring   [][]byte // payload of seq at seq % len
	kept   int
	late   []delayed
	faults Faults
	rng    *rand.Rand
	stats  Stats

	wake chan struct{} // a delayed batch was added, or Close was called
	done chan struct{} // closed when the sender has returned
	stop bool
}

type delayed struct {
	due     time.Time
	seq     uint64
	payload []byte
}

// endMarker is the sequence number that ends a replay.
const endMarker = ^uint64(0)

// Open binds the sockets and starts the sender.
func Open(opt Options) (*Publisher, error) {
	if opt.Ring <= 0 {
		opt.Ring = 10_000
	}
	p := &Publisher{
		opt: opt, seq: opt.FirstSeq, ring: make([][]byte, opt.Ring), rng: rand.New(rand.NewPCG(1, 1)),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	var err error
	if p.pub, err = zmtp.ListenPub("tcp://"+opt.Addr, zmtp.PubOptions{HWM: opt.HWM}); err != nil {
		return nil, fmt.Errorf("kvstream: %w", err)
	}
	if opt.ReplayAddr != "" {
		p.router, err = zmtp.ListenRouter("tcp://"+opt.ReplayAddr, p.replay, zmtp.RouterOptions{})
		if err != nil {
			_ = p.pub.Close()
			return nil, fmt.Errorf("kvstream: %w", err)
		}
	}
	go p.sendLate()
	return p, nil
}

// Addr returns the bound host:port of the PUB socket.
func (p *Publisher) Addr() string { return p.pub.Addr().String() }

// ReplayAddr returns the bound host:port of the replay socket, or "".
func (p *Publisher) ReplayAddr() string {
	if p.router == nil {
		return ""
	}
	return p.router.Addr().String()
}

// Close closes the sockets and waits for the goroutines of Open.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.stop = true
	p.mu.Unlock()
	p.poke()
	<-p.done
	err := p.pub.Close()
	if p.router != nil {
		if rerr := p.router.Close(); err == nil {
			err = rerr
		}
	}
	return err
}

// Reset empties the ring and continues with the sequence number first on the same connections. It
// simulates a restart without a disconnect.
func (p *Publisher) Reset(first uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq, p.kept, p.late = first, 0, nil
	clear(p.ring)
}

// SetFaults replaces the faults.
func (p *Publisher) SetFaults(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Faults returns the current faults.
func (p *Publisher) Faults() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.NextSeq, s.Subscribers = p.seq, p.pub.Subscribers()
	return s
}

// Publish sends one batch. It retains the payload.
func (p *Publisher) Publish(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seq := p.seq
	p.seq++
	p.ring[seq%uint64(len(p.ring))] = payload
	p.kept = min(p.kept+1, len(p.ring))
	p.stats.Published++
	f := &p.faults
	if f.DropNext > 0 || p.hits(f.Drop) {
		f.DropNext = max(0, f.DropNext-1)
		p.stats.Dropped++
		return
	}
	if f.Delay > 0 || len(p.late) > 0 {
		p.late = append(p.late, delayed{time.Now().Add(f.Delay), seq, payload})
		p.poke()
		return
	}
	p.send(seq, payload)
}

func (p *Publisher) hits(share float64) bool { return share > 0 && p.rng.Float64() < share }

// send passes one batch to the socket without blocking. The caller holds mu, so messages have the
// order of their sequence numbers.
func (p *Publisher) send(seq uint64, payload []byte) {
	times := 1
	if p.hits(p.faults.Duplicate) {
		times = 2
		p.stats.Duplicated++
	}
	number := seqFrame(seq)
	for range times {
		if p.pub.Send([]byte(p.opt.Topic), number[:], payload) == nil {
			p.stats.Sent++
		}
	}
}

func seqFrame(seq uint64) (b [8]byte) {
	binary.BigEndian.PutUint64(b[:], seq)
	return b
}

func (p *Publisher) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// sendLate sends delayed batches at their time until Close.
func (p *Publisher) sendLate() {
	defer close(p.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, stop := p.sendDue(time.Now())
		if stop {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
		}
	}
}

func (p *Publisher) sendDue(now time.Time) (wait time.Duration, stop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.late) && !p.late[n].due.After(now) {
		p.send(p.late[n].seq, p.late[n].payload)
		n++
	}
	p.late = append(p.late[:0:0], p.late[n:]...)
	wait = time.Hour
	if len(p.late) > 0 {
		wait = p.late[0].due.Sub(now)
	}
	return wait, p.stop
}
