package group

import "time"

// Member is one replica as the group sees it.
type Member struct {
	ID      string // unique per process start
	Name    string // stable across restarts; ownership hashes it. Defaults to ID
	Boot    uint64 // distinguishes processes that reuse an ID; frames carry it
	Addr    string // where its streams are reached, for people
	Version string // build version, for people
	Zone    string // where it runs; "" when nobody says. Sources of its zone are its first
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

// Never is later than any deadline.
const Never = time.Duration(1<<63 - 1)
