package group

// Refusal is why a frame, or a part of one, was rejected.
type Refusal uint8

// Refusals. Each is counted and changes no state.
const (
	RefusedMember    Refusal = iota // the sender is not a member
	RefusedBoot                     // from another process than the member's current one
	RefusedVersion                  // another major version of the protocol
	RefusedMalformed                // cannot be decoded
	RefusedOversized                // larger than a limit
	RefusedKind                     // message kind unknown to this version
	RefusedState                    // a state that this replica does not have
	RefusedSource                   // a source that this replica does not share
	RefusedAnswer                   // an answer that matches no request
	RefusedPayload                  // the state could not decode it
	NumRefusals
)

// String returns the refusal's metric label.
func (r Refusal) String() string {
	return [...]string{
		"member", "boot", "version", "malformed", "oversized", "kind", "state", "source", "answer", "payload",
	}[r]
}

// Stats counts events since a Core started.
type Stats struct {
	Refused [NumRefusals]uint64
	// Appended and Merged count local and remote deltas by Verdict.
	Appended, Merged [6]uint64

	BorderIn, BorderOut uint64 // bytes of frames from and to members of other zones
	Relayed             uint64 // delta frames forwarded to members of the own zone, one per receiver
	RelayMissed         uint64 // times a member did not receive frames that a relay should have forwarded

	PeersLost          uint64 // times that a peer became unreachable
	GaugesOld          uint64 // gauge messages that arrived too late to matter
	FeedDropped        uint64 // payloads dropped because the queue was full
	FeedMissed         uint64 // payloads from peers that did not arrive
	StaleDeltas        uint64 // deltas of older incarnations
	Straddled          uint64 // deltas that overlap the position in part
	PendingDropped     uint64 // deltas dropped because the buffer was full
	PushDropped        uint64 // live deltas dropped because the queue was full
	Broken             uint64 // deltas that the store rejected
	Lost               uint64 // sequence numbers that could not be recovered
	UnknownSources     uint64 // claims about sources that this replica does not share
	RangesAsked        uint64
	SnapshotsAsked     uint64
	SnapshotsLoaded    uint64
	SnapshotBytes      uint64
	SnapshotsFenced    uint64 // loaded, but of an outdated incarnation by then
	SnapshotsUnbridged uint64 // loaded, but deltas to bridge the gap were gone
	SnapshotsCorrupt   uint64 // loaded, but the digest differs from the announced one
	SnapshotsMade      uint64
	SnapshotsFailed    uint64 // could not be built, or exceed the limit
	PagesServed        uint64
	AskTimeouts        uint64
	LateAnswers        uint64
}

// Traffic counts frames and bytes of one state to and from one peer.
type Traffic struct {
	FramesIn, BytesIn, FramesOut, BytesOut uint64
}

// MemoryUse is the memory that a Core uses for its states, in bytes of payload plus a flat overhead per
// item.
type MemoryUse struct {
	Rings, Pending, Pushes, Snapshots, Loads int
}

// Total returns the sum.
func (h MemoryUse) Total() int { return h.Rings + h.Pending + h.Pushes + h.Snapshots + h.Loads }

// Queue describes the frames that wait for one peer.
type Queue struct {
	Peer          string
	Frames, Bytes int
	Dropped       uint64 // frames, since the start
}

// DeltaCounts accumulates delta counters until AddTo adds them to Stats.
type DeltaCounts struct {
	Appended, Merged                                            [6]uint64
	StaleDeltas, Straddled, PendingDropped, PushDropped, Broken uint64
}

// AddTo adds the counters to s and resets them.
func (t *DeltaCounts) AddTo(s *Stats) {
	for v := range t.Appended {
		s.Appended[v] += t.Appended[v]
		s.Merged[v] += t.Merged[v]
	}
	s.StaleDeltas += t.StaleDeltas
	s.Straddled += t.Straddled
	s.PendingDropped += t.PendingDropped
	s.PushDropped += t.PushDropped
	s.Broken += t.Broken
	*t = DeltaCounts{}
}
