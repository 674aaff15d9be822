package group

// Refusal is why a frame, or a part of it, was not believed.
type Refusal uint8

// Refusals. Each is counted and changes nobody's state.
const (
	RefusedMember    Refusal = iota // the sender is not a member
	RefusedBoot                     // from another process than the member's current one
	RefusedVersion                  // another major version of the protocol
	RefusedMalformed                // cannot be decoded
	RefusedOversized                // larger than a limit
	RefusedKind                     // a kind of message that this version does not know
	RefusedState                    // a state that this replica does not have
	RefusedSource                   // a source that this replica does not share
	RefusedAnswer                   // an answer that does not fit what was asked
	RefusedPayload                  // the state could not read it
	NumRefusals
)

// String returns the refusal as used in metrics.
func (r Refusal) String() string {
	return [...]string{
		"member", "boot", "version", "malformed", "oversized", "kind", "state", "source", "answer", "payload",
	}[r]
}

// Stats counts what a Core did since its start.
type Stats struct {
	Refused [NumRefusals]uint64
	// Appended and Merged count local and remote deltas by Verdict.
	Appended, Merged [6]uint64

	BorderIn, BorderOut uint64 // bytes of frames from and to members of other zones
	Relayed             uint64 // frames of deltas passed on to members of the own zone, for each of them
	RelayMissed         uint64 // times that a member did not get what another was to pass on

	PeersLost          uint64 // times that a peer became unreachable
	GaugesOld          uint64 // gauge messages that came too late to matter
	FeedDropped        uint64 // payloads not sent for lack of room
	FeedMissed         uint64 // payloads of others that did not come
	StaleDeltas        uint64 // deltas of older incarnations
	Straddled          uint64 // deltas that overlap the position in part
	PendingDropped     uint64 // deltas not kept for lack of room
	PushDropped        uint64 // deltas not sent live for lack of room
	Broken             uint64 // deltas that the store refused
	Lost               uint64 // sequence numbers that could not be had
	StrangeSources     uint64 // claims about sources that this replica does not share
	RangesAsked        uint64
	SnapshotsAsked     uint64
	SnapshotsLoaded    uint64
	SnapshotBytes      uint64
	SnapshotsFenced    uint64 // loaded, but of an older incarnation by then
	SnapshotsUnbridged uint64 // loaded, but too old to be brought up to date
	SnapshotsCorrupt   uint64 // loaded, but of another digest than announced
	SnapshotsMade      uint64
	SnapshotsFailed    uint64 // could not be made, or exceed the limit
	PagesServed        uint64
	AskTimeouts        uint64
	LateAnswers        uint64
}

// Traffic counts frames and bytes of one state to and from one peer.
type Traffic struct {
	FramesIn, BytesIn, FramesOut, BytesOut uint64
}

// Held is the memory that a Core holds for its states, in bytes of payload
// with a flat overhead per piece.
type Held struct {
	Rings, Pending, Pushes, Snapshots, Loads int
}

// Total returns the sum.
func (h Held) Total() int { return h.Rings + h.Pending + h.Pushes + h.Snapshots + h.Loads }

// Queue is what waits for one peer.
type Queue struct {
	Peer          string
	Frames, Bytes int
	Dropped       uint64 // frames, since the start
}

// Tally counts what became of deltas, as Stats does, until it is told.
type Tally struct {
	Appended, Merged                                            [6]uint64
	StaleDeltas, Straddled, PendingDropped, PushDropped, Broken uint64
}

// AddTo tells s, and begins anew.
func (t *Tally) AddTo(s *Stats) {
	for v := range t.Appended {
		s.Appended[v] += t.Appended[v]
		s.Merged[v] += t.Merged[v]
	}
	s.StaleDeltas += t.StaleDeltas
	s.Straddled += t.Straddled
	s.PendingDropped += t.PendingDropped
	s.PushDropped += t.PushDropped
	s.Broken += t.Broken
	*t = Tally{}
}
