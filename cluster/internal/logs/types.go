package logs

import (
	"errors"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Delta is the change that the sequence numbers First to Last, both included, of one incarnation
// made to a source. A delta is applied as a whole. One delta per engine batch makes all members
// that read the same stream agree on boundaries.
type Delta struct {
	Source      string
	Inc         uint64
	First, Last uint64
	Payload     []byte
	Local       bool // added by this replica's own reader
}

// Role is a member's relation to a source's stream.
type Role uint8

// Roles.
const (
	RoleNone    Role = iota // follow the publisher
	RoleStandby             // next in line: be ready to read
	RoleReader              // read the stream and append its deltas
)

// String returns the role for display.
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

// Verdict is the result of appending a delta.
type Verdict uint8

// Verdicts.
const (
	Applied Verdict = iota // applied
	Already                // covered by the position; ignored
	Gap                    // buffered: earlier sequence numbers are missing
	Stale                  // of an older incarnation; ignored
	Unknown                // the source is not among SetSources, or has incarnation 0
	Broken                 // the store did not apply all of the payload; its sequence numbers count as lost
)

// String returns the verdict for metrics and logs.
func (v Verdict) String() string {
	return [...]string{"applied", "already", "gap", "stale", "unknown", "broken"}[v]
}

// ErrUnsure is returned by LogStore.Apply for a well-formed payload that builds on content which is
// missing or uncertain. The store applied as much as it could.
var ErrUnsure = errors.New("cluster: delta builds on other content")

// ErrTooLarge is returned by LogStore.Snapshot or Dump.Next if the content is larger than a member
// may load.
var ErrTooLarge = errors.New("cluster: snapshot over its limit")

// LogStore is the application's side of a Log. The log calls it from within its own methods, and it
// must not call back. Calls for one source come one at a time; calls for different sources may be
// concurrent. The log tracks positions; the store only has content.
type LogStore interface {
	// Apply applies d to the content of d.Source. Deltas of an incarnation arrive in order, each
	// once, without gaps except those that MarkLost announced. An error other than ErrUnsure means that
	// the payload is malformed.
	Apply(d Delta) error
	// Reset empties the content of source after its engine restarted.
	Reset(source string, inc uint64)
	// Digest returns the digest of the content of source. It is called after
	// every Apply and must be cheap.
	Digest(source string) Digest
	// Snapshot captures the current content of source, to be encoded in pages of about pageSize
	// bytes. It must be fast for any size.
	Snapshot(source string, pageSize int) (Dump, error)
	// Stage starts building a replacement for the content of source. A peer announced the size,
	// which may be wrong. Unlike the other methods, Stage is called outside of the log's methods
	// and may run concurrently with them.
	Stage(source string, bytes uint64) (Stage, error)
	// Forget drops source, which is no longer shared.
	Forget(source string)
	// Assign sets this member's role for the stream of source. It is called only on changes, and
	// only for owned logs.
	Assign(source string, role Role)
}

// Dump is the content of a source at one moment. Its methods are called outside of the log's
// methods, one at a time, while the store keeps changing.
type Dump interface {
	// Next returns the next page, or nil after the last. The page is not modified afterwards.
	Next() ([]byte, error)
	// Close ends the dump.
	Close()
}

// Stage is new content of a source that is being built. One goroutine uses it at a time.
type Stage interface {
	// Page adds the next page of a Dump. It is called outside of the log's methods.
	Page(page []byte) error
	// Commit atomically replaces the content of the source. If it returns an error, nothing has
	// changed. Commit and Discard are called from within the log's methods and must be fast for any
	// size.
	Commit() error
	// Discard drops the stage. It is called once if Commit is not called, or fails.
	Discard()
}

// Aliases for types of package group.
type (
	// Position is how far a source is known.
	Position = group.Position
	// Digest summarizes its content.
	Digest = group.Digest
)
