package gossip

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// reachWait is how long Open waits for reports about whether peers reach this member. Negative
// reports must last for reachSure. A peer may dial before it has this member's metadata. With
// packet loss, an attempt and the next may each exceed the two seconds that a dial waits for an
// answer.
const (
	reachWait = 9 * time.Second
	reachSure = 6 * time.Second
)

// checkReach returns an error if every peer keeps reporting that it cannot reach the advertised
// address.
func (b *Bus) checkReach(ctx context.Context) error {
	deadline := time.After(reachWait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var bad time.Time
	said, met := "", false
	for {
		why, reached := b.streams.Unreachable()
		others := b.list.NumMembers() - 1
		if len(why) > 0 {
			said = firstOf(why)
		}
		met = met || others > 0
		switch {
		case reached > 0 || !met:
			return nil
		case bad.IsZero():
			if len(why) > 0 && len(why) >= others {
				bad = time.Now()
			}
		case time.Since(bad) > reachSure: // even if alone by then: if probes fail too, the peers may have removed this member
			return fmt.Errorf("%w: %s: %s", ErrUnreachable, b.advertised(), said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return nil // no peer reported; Status will report it later
		case <-tick.C:
		}
	}
}

func firstOf(why map[string]string) string {
	id := slices.Sorted(maps.Keys(why))[0]
	return fmt.Sprintf("%s says: %s", id, why[id])
}

// advertised returns both addresses, for display.
func (b *Bus) advertised() string {
	n := b.nodes.own()
	m := b.meta.Load()
	host := m.StreamHost
	if host == "" {
		host = n.Addr.String()
	}
	return fmt.Sprintf("%s (gossip), %s (streams)", n.Address(), net.JoinHostPort(host, fmt.Sprint(m.StreamPort)))
}

// Status returns the state of the bus.
func (b *Bus) Status() cluster.BusStatus {
	s := cluster.BusStatus{Kind: "gossip", Encrypted: len(b.opt.Keys) > 0, Joining: len(b.opt.Join) > 0 || b.opt.Found != nil}
	if b.list == nil {
		return s
	}
	s.Advertised = b.advertised()
	s.Queues = b.streams.Queues()
	refused, udpLost := b.mlog.state()
	for k, n := range b.streams.Refused() {
		refused[k] += n
	}
	s.Refused = refused
	why, reached := b.streams.Unreachable()
	switch {
	case len(why) > 0 && reached == 0 && !b.streams.WasReached():
		s.Problem = fmt.Sprintf("advertised address %s cannot be reached: %s", s.Advertised, firstOf(why))
	case b.loopbackAdvertised():
		s.Problem = fmt.Sprintf("advertised address %s is this machine's own; others are elsewhere", s.Advertised)
	case udpLost && !b.opt.TCPOnly:
		s.Problem = "UDP does not get through between members: open it, or use TCP only"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joinErr != nil {
		s.JoinError = strings.TrimSpace(b.joinErr.Error())
	}
	return s
}

// loopbackAdvertised reports whether this member advertises a loopback address although other
// members have non-loopback addresses.
func (b *Bus) loopbackAdvertised() bool {
	return b.nodes.own().Addr.IsLoopback() && b.nodes.elsewhere()
}
