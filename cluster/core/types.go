package core

import "time"

// Member is one replica as the group sees it.
type Member struct {
	ID      string // unique per process start
	Name    string // stable across restarts; ownership hashes it. Defaults to ID
	Boot    uint64 // distinguishes processes that reuse an ID; frames carry it
	Addr    string // where its streams are reached, for people
	Version string // build version, for people
}

// Position is how far a source's log is known. The zero Position knows nothing.
type Position struct {
	Inc  uint64 // incarnation of the source, ordered; 0 when unknown
	Next uint64 // sequence number expected next: everything below is covered
	Lost uint64 // how many of the covered sequence numbers could not be had
}

// Known reports whether anything is known of the source.
func (p Position) Known() bool { return p.Inc != 0 }

// Exact reports whether everything before Next was seen.
func (p Position) Exact() bool { return p.Inc != 0 && p.Lost == 0 }

// Beats reports whether p is worth more than q: a later incarnation, else a
// further position, else fewer losses. It is a strict total order.
func (p Position) Beats(q Position) bool {
	if p.Inc != q.Inc {
		return p.Inc > q.Inc
	}
	if p.Next != q.Next {
		return p.Next > q.Next
	}
	return p.Lost < q.Lost
}

// Furthest is the merge of two positions: idempotent, commutative, associative.
func Furthest(p, q Position) Position {
	if q.Beats(p) {
		return q
	}
	return p
}

// Digest sums up a store's content for one source. Two stores at the same
// Position with different digests differ.
type Digest struct {
	Count uint64
	Xor   uint64
}

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
	Broken                 // the store refused the payload; its sequence numbers count as lost
)

// String returns the verdict as used in metrics and logs.
func (v Verdict) String() string {
	return [...]string{"applied", "already", "gap", "stale", "unknown", "broken"}[v]
}

// LogStore is the application's side of a Log. The Core calls it from within
// its own methods, one call at a time; it must not call back. Positions are
// the Core's business: the store holds content only.
type LogStore interface {
	// Apply changes the content of d.Source by d. Deltas of an incarnation
	// come in order, each once, without gaps unless Lose announced them. An
	// error means that the payload is malformed.
	Apply(d Delta) error
	// Reset empties the content of source, whose engine started anew.
	Reset(source string, inc uint64)
	// Digest returns the digest of the content of source. It is called after
	// every Apply and must be cheap.
	Digest(source string) Digest
	// Snapshot encodes the content of source, all at one moment, in pages of
	// about pageSize bytes. The pages are not modified afterwards.
	Snapshot(source string, pageSize int) ([][]byte, error)
	// Restore replaces the content of source by that of pages, atomically. On
	// error nothing has changed.
	Restore(source string, pages [][]byte) error
	// Forget drops source, which is not shared any more.
	Forget(source string)
	// Assign says what this member is to do with the stream of source. It is
	// called on changes only, and on owned logs only.
	Assign(source string, role Role)
}

// GaugeSink is told what other members' gauges are. Calls come one at a time
// and must not call back. value is retained by the caller: copy what is kept.
type GaugeSink interface {
	// Merge sets key of origin; a nil value removes it. version is the state
	// version that origin writes. An error counts and changes nothing else.
	Merge(origin string, version uint64, key string, value []byte) error
	// Drop forgets everything of origin.
	Drop(origin string)
}

// FeedSink is told what other members sent to a Feed.
type FeedSink interface {
	Deliver(origin string, version uint64, payload []byte) error
}

// Class is how urgent a frame is.
type Class uint8

// Classes. Live frames should overtake Bulk ones.
const (
	Live Class = iota
	Bulk
)

// Envelope is a frame to be sent.
type Envelope struct {
	To    []string // member IDs; nil means every member
	Class Class
	State string // the state it belongs to, "" for heartbeats
	Frame []byte
}

// Share is who reads which stream.
type Share uint8

// Ways to share reading.
const (
	ShareAuto        Share = iota // mesh while the pool is small
	ShareMesh                     // every member reads every stream
	SharePartitioned              // one owner reads each stream
)

// String returns the option's spelling.
func (s Share) String() string {
	return [...]string{"auto", "mesh", "partitioned"}[s]
}

// ParseShare reads the option's spelling.
func ParseShare(s string) (Share, bool) {
	for _, v := range []Share{ShareAuto, ShareMesh, SharePartitioned} {
		if v.String() == s {
			return v, true
		}
	}
	return ShareAuto, false
}

// Phase is how far a member has settled.
type Phase uint8

// Phases.
const (
	Settling Phase = iota // still catching up with what others know
	Settled               // knows what at least one live peer knew, or is alone by configuration
	Degraded              // went on without: nobody answered, or catching up took too long
)

// String returns the phase as shown to people.
func (p Phase) String() string {
	return [...]string{"settling", "settled", "degraded"}[p]
}

// never is later than any deadline.
const never = time.Duration(1<<63 - 1)
