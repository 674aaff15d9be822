package cluster

import (
	"context"
)

// Bus finds the other members and carries frames between them. Frames may be
// lost, and may come twice or late; what it says of a frame's sender must be
// true. Packages gossip, natsbus and hub implement it; New takes None when
// there is none.
type Bus interface {
	// Open joins the group and delivers to h until Close. It fails when the
	// configuration cannot work, not because nobody else is there.
	Open(ctx context.Context, h Handler) error
	// Send queues a frame for the members that e names, or for all, and
	// returns at once. What does not fit a peer's queue is dropped and
	// counted: it never waits for a slow peer.
	Send(e Envelope)
	// Leave tells the others that this member goes, and returns when that is
	// on its way or ctx ends.
	Leave(ctx context.Context) error
	// Close stops everything and waits for it. No delivery follows.
	Close() error
	// Status says how it is. It may be called at any time.
	Status() BusStatus
}

// Handler is told what a Bus sees. Calls may come from any goroutine, but not
// after Close; they return quickly.
type Handler interface {
	// Members replaces the view of who is in the group; self may be listed.
	Members(members []Member)
	// Link says whether frames can be sent to a member, before or after Members names
	// it. A link that breaks is evidence that its member is gone.
	Link(id string, up bool)
	// Receive takes a frame from an authenticated member. The frame belongs
	// to the handler.
	Receive(from string, frame []byte)
}

// BusStatus is how a Bus is.
type BusStatus struct {
	Kind       string // "none", "gossip", "nats"
	Advertised string // where others reach this member
	Encrypted  bool   // what it sends cannot be read by others
	// Joining says that a way to others is configured: being alone is then
	// worth a word.
	Joining bool
	// JoinError is why no member could be joined at the last try.
	JoinError string
	// Problem is one line for an operator when something must be put right
	// ("" otherwise).
	Problem string
	// Disconnected says that what carries frames is out of reach.
	Disconnected bool
	// Refused counts connections, packets and frames turned away, by reason:
	// key, label, plaintext, identity, frame.
	Refused map[string]uint64
	Queues  []Queue
}

// None is the Bus of a replica without others: the same code runs, and
// nothing is sent.
type None struct{}

// Open does nothing.
func (None) Open(context.Context, Handler) error { return nil }

// Send drops e.
func (None) Send(Envelope) {}

// Leave does nothing.
func (None) Leave(context.Context) error { return nil }

// Close does nothing.
func (None) Close() error { return nil }

// Status returns the kind.
func (None) Status() BusStatus { return BusStatus{Kind: "none"} }
