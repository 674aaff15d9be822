package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate gives memberlist this member's metadata, and is told of changes.
// memberlist calls it under its own locks, so it only takes notes.
type delegate struct{ b *Bus }

// NodeMeta returns this member's metadata.
func (d delegate) NodeMeta(limit int) []byte {
	m := d.b.meta.Load().append(nil)
	return m[:min(limit, len(m))]
}

// NotifyMsg ignores user messages: none are sent.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts has nothing to broadcast.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState adds nothing to memberlist's own exchange.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what others add.
func (delegate) MergeRemoteState([]byte, bool) {}

// NotifyJoin is told of a member that came.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	d.b.nodes.set(n, n.Name == d.b.opt.Self.ID)
	d.b.gone.remove(n.Address())
	d.b.mark()
}

// NotifyLeave is told of a member that went.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	d.b.nodes.remove(n.Name)
	if n.Name != d.b.opt.Self.ID {
		d.b.gone.add(n.Address(), time.Now())
	}
	d.b.mark()
}

// NotifyUpdate is told of a member whose metadata changed.
func (d delegate) NotifyUpdate(n *memberlist.Node) {
	d.b.nodes.set(n, n.Name == d.b.opt.Self.ID)
	d.b.mark()
}

// NotifyAlive refuses members whose metadata cannot be read.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if _, err := parseMeta(n.Meta); err != nil {
		d.b.mlog.count(refusedIdentity)
		return err
	}
	return nil
}

// AckPayload adds nothing to answers of probes.
func (delegate) AckPayload() []byte { return nil }

// NotifyPingComplete is told that a member answered by UDP.
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.b.mlog.probed(n.Name)
}

// NotifyConflict is told of two members with one ID, which NewMember makes
// impossible; an ID set by hand is not.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.b.mlog.count(refusedIdentity)
	d.b.opt.Logger.Error("two members have the same ID", "id", existing.Name,
		"addr", existing.Address(), "other", other.Address())
}
