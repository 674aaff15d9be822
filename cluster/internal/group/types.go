package group

import "time"

// Member is one replica as the group sees it.
type Member struct {
	ID      string // unique per process start
	Name    string // stable across restarts; ownership hashes it. Defaults to ID
	Boot    uint64 // distinguishes processes that reuse an ID; frames carry it
	Addr    string // where its streams are reached, for display
	Version string // build version, for display
	Zone    string // where it runs; "" if unknown. It prefers sources of its own zone
}

// Class is the priority of a frame.
type Class uint8

// Classes. Live frames may overtake Bulk ones.
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

// Share selects how members divide the event streams.
type Share uint8

// Modes of sharing.
const (
	ShareAuto        Share = iota // mesh while the pool is small, then partitioned
	ShareMesh                     // every member reads every stream
	SharePartitioned              // one owner reads each stream
)

// String returns the option's value.
func (s Share) String() string {
	return [...]string{"auto", "mesh", "partitioned"}[s]
}

// ParseShare parses the option's value.
func ParseShare(s string) (Share, bool) {
	for _, v := range []Share{ShareAuto, ShareMesh, SharePartitioned} {
		if v.String() == s {
			return v, true
		}
	}
	return ShareAuto, false
}

// Phase is a member's progress at joining.
type Phase uint8

// Phases.
const (
	Settling Phase = iota // still catching up with other members
	Settled               // has the state of at least one live peer, or is alone by configuration
	Degraded              // continues without: no peer answered, or catching up took too long
)

// String returns the phase for display.
func (p Phase) String() string {
	return [...]string{"settling", "settled", "degraded"}[p]
}

// Never is after any deadline.
const Never = time.Duration(1<<63 - 1)
