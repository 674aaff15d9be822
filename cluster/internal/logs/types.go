package logs

import (
	"errors"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Delta is what the sequence numbers First to Last, both included, of one
// incarnation of a source changed. Deltas are applied whole; one delta per
// engine batch lets members that read the same stream agree on boundaries.
type Delta struct {
	Source      string
	Inc         uint64
	First, Last uint64
	Payload     []byte
	Local       bool // handed in by this replica's own reader
}

// Role is what a member does with a source's stream.
type Role uint8

// Roles.
const (
	RoleNone    Role = iota // follow what others publish
	RoleStandby             // next in line: be ready to read
	RoleReader              // read the stream and append what it says
)

// String returns the role as shown to people.
func (r Role) String() string {
	switch r {
	case RoleReader:
		return "reader"
	case RoleStandby:
		return "standby"
	default:
		return "none"
	}
}

// Verdict is what became of an appended delta.
type Verdict uint8

// Verdicts.
const (
	Applied Verdict = iota // applied now
	Already                // the position was reached before; ignored
	Gap                    // kept aside: sequence numbers before it are missing
	Stale                  // of an older incarnation; ignored
	Unknown                // the source is not among SetSources, or has incarnation 0
	Broken                 // the store did not apply all of the payload; its sequence numbers count as lost
)

// String returns the verdict as used in metrics and logs.
func (v Verdict) String() string {
	return [...]string{"applied", "already", "gap", "stale", "unknown", "broken"}[v]
}

// ErrUnsure is what a LogStore's Apply returns when a payload is well formed and builds
// on content that is not there, or not for sure: what could be applied was.
var ErrUnsure = errors.New("cluster: delta builds on other content")

// ErrTooLarge is what a LogStore's Snapshot, or a Dump's Next, returns when the content
// takes more than a member may load.
var ErrTooLarge = errors.New("cluster: snapshot over its limit")

// LogStore is the application's side of a Log. The log calls it from within its own
// methods; it must not call back. Calls for one source come one at a time, those for
// different sources at the same time. Positions are the log's business: the store holds
// content only.
type LogStore interface {
	// Apply changes the content of d.Source by d. Deltas of an incarnation
	// come in order, each once, without gaps unless Lose announced them. An
	// error means that the payload is malformed, but for ErrUnsure.
	Apply(d Delta) error
	// Reset empties the content of source, whose engine started anew.
	Reset(source string, inc uint64)
	// Digest returns the digest of the content of source. It is called after
	// every Apply and must be cheap.
	Digest(source string) Digest
	// Snapshot takes the content of source as it is at this moment, to be put in
	// pages of about pageSize bytes. It must be quick whatever the size.
	Snapshot(source string, pageSize int) (Dump, error)
	// Stage begins another content of source, of some bytes in pages as a peer says, who may
	// lie, beside the present one. Unlike the other methods it is called outside of the log's own,
	// and may run while they do.
	Stage(source string, bytes uint64) (Stage, error)
	// Forget drops source, which is not shared any more.
	Forget(source string)
	// Assign says what this member is to do with the stream of source. It is
	// called on changes only, and on owned logs only.
	Assign(source string, role Role)
}

// Dump is the content of a source at one moment. Its methods are called outside of
// the log's own, one at a time, while the store goes on changing.
type Dump interface {
	// Next returns the next page, which is not modified afterwards; nil after the last.
	Next() ([]byte, error)
	// Close ends the dump.
	Close()
}

// Stage is a content of a source in the making. One goroutine uses it at a time.
type Stage interface {
	// Page adds the next page of a Dump. It is called like the methods of a Dump.
	Page(page []byte) error
	// Commit replaces the content of the source, atomically. On error nothing has changed.
	// It and Discard are called from within the log's methods, and must be quick whatever
	// the size.
	Commit() error
	// Discard gives the stage up. It is called once where Commit is not, or fails.
	Discard()
}

// What members tell each other of sources.
type (
	// Position is how far a source is known.
	Position = group.Position
	// Digest sums up its content.
	Digest = group.Digest
)
