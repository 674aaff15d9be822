package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/internal/loglines"
)

// Node is one replica's membership in the group. It runs a core.Core with a clock, a lock and a
// [Bus]. Register states between New and Open. All methods are safe for concurrent use, but must
// not be called from within a LogStore, GaugeSink or FeedSink; see the package comment.
type Node struct {
	opt   Options
	log   *slog.Logger
	muted atomic.Bool
	lines loglines.Lines // of the loop; written without mu
	mu    sync.Mutex
	core  *core.Core
	next  atomic.Int64 // next wake-up of the loop, as a time.Duration
	wake  chan struct{}
	stop  context.CancelFunc
	done  chan struct{}
	work  *work
	rate  rates
	seen  map[string]bool   // peers that were up at the last check, for the log
	lost  map[string]lostAt // by name
	// replaced holds the IDs of down members that new members have replaced.
	replaced map[string]bool
	was      Phase

	deltas sync.Pool // of *core.Deltas
}

// New returns a Node, which is inactive until Open.
func New(opt Options) *Node {
	opt = opt.withDefaults()
	return &Node{
		opt: opt, log: opt.Logger, core: core.New(opt.Tuning),
		wake: make(chan struct{}, 1), work: newWork(), seen: map[string]bool{}, lost: map[string]lostAt{}, replaced: map[string]bool{},
		deltas: sync.Pool{New: func() any { return &core.Deltas{} }},
	}
}

// Self returns this replica's identity.
func (n *Node) Self() Member { return n.opt.Self }

// Open joins the group and starts sharing. It returns the Bus's error if that fails.
func (n *Node) Open(ctx context.Context) error {
	if n.done != nil {
		return errors.New("cluster: opened twice")
	}
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop, n.done = stop, make(chan struct{})
	go n.run(loop)
	n.work.start(n.do)
	if err := n.opt.Bus.Open(ctx, handler{n}); err != nil {
		stop()
		<-n.done
		n.work.close()
		return err
	}
	return nil
}

// Close stops at once without announcing it. See Drain.
func (n *Node) Close() error {
	if n.done == nil {
		return nil
	}
	err := n.opt.Bus.Close()
	n.stop()
	<-n.done
	n.work.close()
	return err
}

// Drain calls HandOver and then Leave, for members with nothing left to report. Call Close
// afterwards.
func (n *Node) Drain(ctx context.Context) error {
	n.HandOver(ctx)
	return n.Leave(ctx)
}

// HandOver announces that this member will leave. It returns when other members read all of its
// sources, or when ctx ends. The member stays in the group and continues to exchange soft state,
// such as the load of running requests.
func (n *Node) HandOver(ctx context.Context) {
	n.do(n.core.Leave)
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	handed := false
	for !handed {
		n.do(func() { handed = n.core.SourcesTransferred() })
		if handed {
			break
		}
		select {
		case <-ctx.Done():
			n.log.Warn("leaving before other replicas have taken over all event sources", "error", ctx.Err())
			handed = true
		case <-t.C:
		}
	}
}

// Leave removes this member from the group within two seconds. Other members drop its soft state.
func (n *Node) Leave(ctx context.Context) error {
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return n.opt.Bus.Leave(leave)
}

// SetMuted stops or resumes sending to the other members. They treat a muted replica as silent:
// they take over its sources and stop relying on it. Missed updates are repaired when it sends
// again.
func (n *Node) SetMuted(muted bool) { n.muted.Store(muted) }

// Phase returns the phase of joining. The replica is ready for traffic in every phase but Settling.
func (n *Node) Phase() Phase {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.core.Phase()
}

// WaitSettled waits until the phase is no longer Settling, and returns it.
func (n *Node) WaitSettled(ctx context.Context) (Phase, error) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		if p := n.Phase(); p != Settling {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return Settling, ctx.Err()
		case <-t.C:
		}
	}
}

// run ticks the core when due.
func (n *Node) run(ctx context.Context) {
	defer close(n.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n.opt.Watch.Working()
		n.mu.Lock()
		now := n.opt.Now()
		n.core.Advance(now)
		n.core.Tick()
		n.flush()
		n.observe(now)
		next := n.core.Deadline()
		if len(n.seen) > 0 || n.core.Phase() != n.was { // the next check may have something to log
			next = min(next, n.rate.at+observeEvery)
		}
		n.next.Store(int64(next))
		lines := n.lines.Take()
		n.mu.Unlock()
		lines.Write(n.log)
		n.opt.Watch.Waiting()
		if n.core.Fresh() {
			next = now // inputs in the meantime may not have seen the wake-up time
		}
		timer.Reset(max(next-now, 0))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-n.wake:
		}
	}
}

// do runs an input of the core, sends the resulting frames, and wakes the loop early if needed.
func (n *Node) do(fn func()) {
	n.mu.Lock()
	n.core.Advance(n.opt.Now())
	fn()
	n.flush()
	due := n.core.Deadline()
	n.mu.Unlock()
	n.wakeAt(due)
}

// wakeAt makes the loop wake up no later than due.
func (n *Node) wakeAt(due time.Duration) {
	for next := n.next.Load(); int64(due) < next; next = n.next.Load() {
		if !n.next.CompareAndSwap(next, 0) {
			continue
		}
		select {
		case n.wake <- struct{}{}:
		default:
		}
		return
	}
}

// flush passes the core's frames to the Bus in order, and therefore under the lock. Jobs run
// without it.
func (n *Node) flush() {
	n.work.add(n.core.Jobs())
	muted := n.muted.Load()
	for _, e := range n.core.Drain() {
		if !muted {
			n.opt.Bus.Send(e)
		}
	}
}

// handler implements the Bus's Handler for a Node.
type handler struct{ n *Node }

// Members implements Handler.
func (h handler) Members(members []Member) {
	h.n.do(func() {
		h.n.noteLost(members, h.n.opt.Now())
		h.n.core.SetMembers(members)
	})
}

// Link implements Handler.
func (h handler) Link(id string, up bool) { h.n.do(func() { h.n.core.SetLink(id, up) }) }

// Reaches reports whether frames of a member that does not leave arrive within its lease and frames
// can be sent to it, now and at any time before.
func (h handler) Reaches(id string) (now, ever bool) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.core.Reaches(id)
}

// Receive implements Handler.
func (h handler) Receive(from string, frame []byte) {
	n := h.n
	m := n.deltas.Get().(*core.Deltas)
	defer n.deltas.Put(m)
	use := m
	if _, ok := n.core.Deliver(n.opt.Now(), from, frame, m); !ok {
		use = nil
	}
	n.do(func() {
		n.noteFrame(from, n.opt.Now())
		n.core.ReceiveDelivered(from, frame, use)
	})
}

// gone logs that a member is no longer reached: Info if it left or this replica is leaving, Warn if
// it vanished.
func (n *Node) gone(id string, listed bool) {
	died := listed
	for _, l := range n.lost {
		died = died || l.ID == id
	}
	if n.core.Leaving() || !died {
		n.lines.Info("member left", "member", id)
		return
	}
	n.lines.Warn("member unreachable", "member", id, "listed", listed)
}

// observe logs changes of the group and samples traffic.
func (n *Node) observe(now time.Duration) {
	if !n.rate.due(now) {
		return
	}
	peers := n.core.Peers()
	n.rate.sample(now, peers)
	up := make(map[string]bool, len(peers))
	for _, p := range peers {
		up[p.Member.ID] = p.Up
		if p.Up && !n.seen[p.Member.ID] {
			n.lines.Info("member reachable", "member", p.Member.ID, "addr", p.Member.Addr, "rtt", p.RTT)
		}
	}
	for id, was := range n.seen {
		if _, listed := up[id]; was && !up[id] {
			n.gone(id, listed)
		}
	}
	n.seen = up
	if p := n.core.Phase(); p != n.was {
		n.was = p
		n.lines.Info("cluster phase", "phase", p.String(), "peers", len(peers))
	}
}
