package group

import "time"

// ClockDifference compares a peer's wall clock with this member's. The zero value means that it is
// not known.
type ClockDifference struct {
	Ahead time.Duration // of the peer's clock; negative: it is behind
	// Within is the possible error: half of the round trip during which the clocks were compared.
	Within time.Duration
	Known  bool
}

// maxClockDifference bounds differences, so that a malformed time does not overflow.
const maxClockDifference = 100 * 365 * 24 * time.Hour

// CompareClocks compares the time in a peer's heartbeat with this member's at its arrival, both in
// microseconds since 1970. The heartbeat was under way for at most rtt.
func CompareClocks(peer, self uint64, rtt time.Duration) ClockDifference {
	const limit = uint64(maxClockDifference / time.Microsecond)
	if peer == 0 || self == 0 {
		return ClockDifference{}
	}
	var ahead time.Duration
	if peer >= self {
		ahead = time.Duration(min(peer-self, limit)) * time.Microsecond
	} else {
		ahead = -time.Duration(min(self-peer, limit)) * time.Microsecond
	}
	return ClockDifference{Ahead: ahead + rtt/2, Within: rtt / 2, Known: true}
}

// Certain returns the part of the difference that the round trip does not explain.
func (d ClockDifference) Certain() time.Duration {
	return max(d.Ahead.Abs()-d.Within, 0)
}
