package gossip

import (
	"context"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/stream"
)

// proofWait is how long a process may be in gossip without a stream before it counts as a member
// that is unreachable: four round trips, and a lost packet. A dead process does not answer memberlist's
// probes, and is removed then.
const proofWait = 4*group.MaxRoundTrip + time.Second

// proofs records which processes are proven alive, by ID. A process proves it by a stream, in
// either direction, with the certificate key that gossip lists. Gossip messages alone may be
// replayed. Safe for concurrent use.
type proofs struct {
	mu    sync.Mutex
	of    map[string]bool
	named map[string]time.Time // since when gossip has listed the unproven ones
}

// give records that a process is alive and reports whether that is new.
func (p *proofs) give(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[id] {
		return false
	}
	if p.of == nil {
		p.of = map[string]bool{}
	}
	p.of[id] = true
	return true
}

// sift returns the processes in names that are members. again is when others may become members, or
// zero. A process that gossip no longer lists must prove itself again.
func (p *proofs) sift(names []string, now time.Time) (members map[string]bool, again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	members = map[string]bool{}
	of, named := map[string]bool{}, map[string]time.Time{}
	for _, id := range names {
		if p.of[id] {
			of[id], members[id] = true, true
			continue
		}
		since, ok := p.named[id]
		if !ok {
			since = now
		}
		named[id] = since
		if left := proofWait - now.Sub(since); left <= 0 {
			members[id] = true
		} else if again == 0 || left < again {
			again = left
		}
	}
	p.of, p.named = of, named
	return members, again
}

// prover receives stream events before the Bus's handler does.
type prover struct{ b *Bus }

// Link implements stream.Handler.
func (p prover) Link(id string, up bool) {
	if up {
		p.prove(id)
	}
	p.b.handler.Link(id, up)
}

// Receive implements stream.Handler.
func (p prover) Receive(from string, frame []byte) {
	p.prove(from)
	p.b.handler.Receive(from, frame)
}

func (p prover) prove(id string) {
	if p.b.proofs.give(id) {
		p.b.announce()
	}
}

// reacher is a handler that reports whether frames pass in both directions between this member and
// another one that does not leave, now and at any time before. Its time limits depend on the link.
type reacher interface {
	Reaches(id string) (now, ever bool)
}

// suspectCheck is the time between two checks of a member that memberlist gave up.
const suspectCheck = 100 * time.Millisecond

// announce passes the members to the handler, one call at a time so that the latest view comes last. It
// returns the peers to dial and when to call again. A member that memberlist gave up stays while its
// streams deliver, and until its first streams are due: probes have fixed time limits, which a slow
// link exceeds.
func (b *Bus) announce() (peers []stream.Peer, again time.Duration) {
	b.announcing.Lock()
	defer b.announcing.Unlock()
	suspects := b.nodes.settle(func(id string, since time.Time) bool {
		now, ever := b.reaches(id)
		return now || !ever && time.Since(since) < proofWait
	})
	all, peers := b.view()
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.ID
	}
	is, again := b.proofs.sift(names, time.Now())
	members := make([]cluster.Member, 0, len(all))
	for _, m := range all {
		if is[m.ID] || m.ID == b.opt.Self.ID {
			members = append(members, m)
		}
	}
	b.handler.Members(members)
	if suspects && (again == 0 || again > suspectCheck) {
		again = suspectCheck
	}
	return peers, again
}

// follow passes membership changes to the handler.
func (b *Bus) follow(ctx context.Context) {
	later := time.NewTimer(time.Hour)
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
		case <-later.C:
		}
		peers, again := b.announce()
		b.streams.SetPeers(peers)
		if again > 0 {
			later.Reset(again)
		}
	}
}
