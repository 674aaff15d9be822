package gossip

import (
	"context"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/internal/stream"
)

// proofWait is how long gossip may name a process with which no stream was made before
// it counts as a member all the same, one that cannot be reached. Who does not live does
// not answer memberlist's probes, and is not named for so long.
const proofWait = 5 * time.Second

// proofs holds which processes have shown that they live, by ID: a stream to or from each
// was made with the key of the certificate that gossip says is its own. What gossip
// brings may have been recorded. Safe for concurrent use.
type proofs struct {
	mu    sync.Mutex
	of    map[string]bool
	named map[string]time.Time // since when gossip names those that have not
}

// give notes that a process lives, and reports whether that was not known.
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

// sift returns which of the processes that gossip names are members, and when to look
// again if some of the others may become some; zero when not. Who is not named any more
// has to prove itself anew.
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

// prover is told of streams, before the handler of the Bus is.
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
		p.b.tell()
	}
}

// tell hands on who is a member, one call at a time so that the latest word is the
// last, and returns whom to dial and when to look again.
func (b *Bus) tell() (peers []stream.Peer, again time.Duration) {
	b.telling.Lock()
	defer b.telling.Unlock()
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
	return peers, again
}

// follow hands membership on when it changed.
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
		peers, again := b.tell()
		b.streams.SetPeers(peers)
		if again > 0 {
			later.Reset(again)
		}
	}
}
