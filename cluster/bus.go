package cluster

import (
	"context"
)

// Bus discovers the other members and carries frames between them. Frames may be lost, duplicated
// or delayed, but the sender reported for a frame must be authentic. Packages gossip, natsbus and
// hub implement it. None is the Bus of a single replica.
type Bus interface {
	// Open joins the group and delivers to h until Close. It returns an error if the configuration
	// cannot work, but not if no other member is reachable.
	Open(ctx context.Context, h Handler) error
	// Send queues a frame for the members in e, or for all, and returns immediately. It never waits
	// for a slow peer: a frame that does not fit in a peer's queue is dropped and counted.
	Send(e Envelope)
	// Leave announces that this member leaves. It returns once the announcement is sent or ctx
	// ends.
	Leave(ctx context.Context) error
	// Close stops the Bus and waits. No delivery follows.
	Close() error
	// Status returns the state of the Bus. Safe to call at any time.
	Status() BusStatus
}

// Handler receives events from a Bus. A Bus may call it on any goroutine, but not after Close.
// Calls must return quickly.
type Handler interface {
	// Members replaces the list of members. It may include this one.
	Members(members []Member)
	// Link reports whether frames can be sent to a member, before or after Members lists it. A
	// broken link is evidence that the member is gone.
	Link(id string, up bool)
	// Receive handles a frame from an authenticated member. The frame belongs to the handler
	// afterwards.
	Receive(from string, frame []byte)
}

// BusStatus is the state of a Bus.
type BusStatus struct {
	Kind       string // "none", "gossip", "nats"
	Advertised string // address at which other members reach this one
	Encrypted  bool   // traffic is encrypted
	// Joining means that the configuration names other members, so being alone is worth reporting.
	Joining bool
	// JoinError is why the last attempt to join failed.
	JoinError string
	// Problem is a line for the operator if something needs fixing; otherwise "".
	Problem string
	// Disconnected means that the transport is unreachable.
	Disconnected bool
	// Refused counts rejected connections, packets and frames, by reason: key, label, plaintext,
	// identity, frame.
	Refused map[string]uint64
	Queues  []Queue
}

// None is the Bus of a single replica. The same code runs, but nothing is sent.
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
