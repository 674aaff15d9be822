package group

import "time"

// MaxRoundTrip is the longest round trip between two members for which the group holds together.
// Time limits that apply before a measurement assume it. Members on slower links keep serving, and
// report the link.
const MaxRoundTrip = 1200 * time.Millisecond

// LeaseMost bounds the lease of a peer on a slow or lossy link, unless the lease of a large group is
// longer.
const LeaseMost = 3 * time.Second

// maxSample bounds a measured round trip.
const maxSample = time.Minute

// RoundTrip estimates a link's round trip as RFC 6298 does for TCP. The zero value has no
// measurement.
type RoundTrip struct {
	Smoothed  time.Duration // 0 until measured
	Deviation time.Duration
	Least     time.Duration
	Last      time.Duration

	begin  time.Duration // of the window in progress
	low    time.Duration // the least measurement of that window
	count  int           // measurements in that window
	before time.Duration // the least measurement of the window before; 0: there was none
	total  int           // measurements that Least covers, at most leastOf
}

// A link is slow if all measurements of slowWindow are, of which there are slowSamples or more. New
// connections have queues and retransmissions, so single ones prove nothing.
const (
	slowWindow  = 3 * time.Second
	slowSamples = 5
)

// Add adds a measurement.
func (r *RoundTrip) Add(now, rtt time.Duration) {
	rtt = min(max(rtt, 1), maxSample)
	r.Last = rtt
	if now-r.begin >= slowWindow && r.count >= slowSamples {
		r.before, r.count = r.low, 0
	}
	if r.count++; r.count == 1 {
		r.begin, r.low = now, rtt
	}
	r.low = min(r.low, rtt)
	if r.total == 0 {
		r.Least = rtt
	}
	r.total = min(r.total+1, leastOf)
	r.Least = min(r.Least, rtt)
	if r.Smoothed == 0 {
		r.Smoothed, r.Deviation = rtt, rtt/2
		return
	}
	r.Deviation += ((rtt - r.Smoothed).Abs() - r.Deviation) / 4
	r.Smoothed += (rtt - r.Smoothed) / 8
}

// Recent returns the least of the measurements of the last seconds.
func (r *RoundTrip) Recent() time.Duration {
	if r.before == 0 {
		return r.low
	}
	return min(r.before, r.low)
}

// Slow reports whether the delay of the link itself exceeds MaxRoundTrip now.
func (r *RoundTrip) Slow() bool { return r.before > 0 && r.Recent() > MaxRoundTrip }

// leastOf is the number of measurements after which Least counts as the delay of the link itself. The
// first frames of a connection may all be late.
const leastOf = 5

// Late returns by how much the last measurement exceeded the delay of the link itself: the time that
// frames now spend in queues and in retransmissions. After too few measurements it returns the last one.
func (r *RoundTrip) Late() time.Duration {
	if r.total < leastOf {
		return r.Last
	}
	return r.Last - r.Least
}

// Resume keeps the least measurement of an earlier connection to the same process.
func (r *RoundTrip) Resume(old *RoundTrip) { r.Least, r.total = old.Least, old.total }

// Timeout returns how long an answer may take: the smoothed round trip plus four deviations. TCP sends
// a lost packet again after that time.
func (r *RoundTrip) Timeout() time.Duration { return r.Smoothed + 4*r.Deviation }

// LeaseOn returns how long a peer may be silent that sends a heartbeat every so often. least is the
// lease on a fast link. On a slow link the lease is three heartbeats and two timeouts of the link. After
// the first, TCP sends a lost packet again. New connections send little before the first answers, so
// they stall as long. An unmeasured link counts as slow.
func LeaseOn(r *RoundTrip, every, least time.Duration) time.Duration {
	timeout := r.Timeout()
	if r.Smoothed == 0 {
		timeout = MaxRoundTrip
	}
	return max(least, min(3*every+2*timeout, LeaseMost))
}
