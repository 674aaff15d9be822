package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate provides this member's metadata to memberlist and receives its events. memberlist calls
// it under its own locks, so it only records them.
type delegate struct{ b *Bus }

// NodeMeta returns this member's metadata.
func (d delegate) NodeMeta(limit int) []byte {
	m := d.b.meta.Load().append(nil)
	return m[:min(limit, len(m))]
}

// NotifyMsg ignores user messages: none are sent.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts returns nothing.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState adds nothing to memberlist's state exchange.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores state that peers add.
func (delegate) MergeRemoteState([]byte, bool) {}

// NotifyJoin records a new member.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	d.b.nodes.set(n, n.Name == d.b.opt.Self.ID)
	d.b.gone.remove(n.Address())
	d.b.mark()
}

// NotifyLeave records that a member left or failed. Bus.tell decides whether it is gone.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	d.b.nodes.suspect(n.Name)
	if n.Name != d.b.opt.Self.ID {
		d.b.gone.add(n.Address(), time.Now())
	}
	d.b.mark()
}

// NotifyUpdate records a member's changed metadata.
func (d delegate) NotifyUpdate(n *memberlist.Node) {
	d.b.nodes.set(n, n.Name == d.b.opt.Self.ID)
	d.b.mark()
}

// NotifyAlive rejects members with malformed metadata.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if _, err := parseMeta(n.Meta); err != nil {
		d.b.mlog.count(refusedIdentity)
		return err
	}
	return nil
}

// AckPayload adds nothing to probe replies.
func (delegate) AckPayload() []byte { return nil }

// NotifyPingComplete records that a member answered over UDP.
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.b.mlog.probed(n.Name)
}

// NotifyConflict reports two members with the same ID. IDs from NewMember are unique; IDs set by
// hand may not be.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.b.mlog.count(refusedIdentity)
	d.b.opt.Logger.Error("two members have the same ID", "id", existing.Name,
		"addr", existing.Address(), "other", other.Address())
}
