package server

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/lateness"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

const (
	keyLate     = "late"                 // milliseconds, as a varint
	lateStep    = 10 * time.Millisecond  // the shared value is rounded down to it
	latePublish = 500 * time.Millisecond // shortest time between two shared values
)

// ownPace measures how late this replica's timers are, shares that with the group, and decides
// whether the replica leaves because the others are on time. Its methods but slow, observed and
// Collect are for the goroutine of xdsShare.
type ownPace struct {
	meter     lateness.Meter
	judge     lateness.Judge
	published time.Duration
	sent      time.Time // of told

	why  atomic.Pointer[string] // why the replica is out; nil: it is not
	late atomic.Int64           // ns
}

// step is called each time that the loop of xdsShare runs, with the time at which that was due. It
// returns a value to share if it has changed.
func (p *ownPace) step(now, due time.Time, x *xdsShare) (value []byte) {
	own := p.meter.Ran(now, due)
	p.late.Store(int64(own))
	if !x.o.Settled() {
		return nil
	}
	others, count := x.otherPaces()
	was := p.why.Load() != nil
	switch out := p.judge.Step(now, own, others, count); {
	case out && !was:
		slices.Sort(others)
		why := fmt.Sprintf("timers of this replica run %d ms late, those of the other ready replicas %s ms", own.Milliseconds(), millisOf(others))
		p.why.Store(&why)
		x.o.Log.Warn("replica is leaving service: it has too little CPU time", "reason", why)
	case !out && was:
		p.why.Store(nil)
		x.o.Log.Info("replica timers are on time again, returning to service", "late_ms", own.Milliseconds())
	}
	if shown := own.Truncate(lateStep); p.sent.IsZero() || shown != p.published && now.Sub(p.sent) >= latePublish {
		p.published, p.sent = shown, now
		return binary.AppendUvarint(nil, uint64(shown.Milliseconds()))
	}
	return nil
}

func millisOf(list []time.Duration) string {
	var out []string
	for _, d := range list {
		out = append(out, fmt.Sprint(d.Milliseconds()))
	}
	return strings.Join(out, ", ")
}

// slow returns why this replica is out of service, "" if it is not.
func (p *ownPace) slow() string {
	if why := p.why.Load(); why != nil {
		return *why
	}
	return ""
}

var lateDesc = prometheus.NewDesc("grapevine_replica_lateness_seconds", "Upper quartile of the lateness of this replica's timers over five seconds. A replica with too little CPU time has late timers.", nil, nil)

// Describe implements prometheus.Collector.
func (p *ownPace) Describe(ch chan<- *prometheus.Desc) { ch <- lateDesc }

// Collect implements prometheus.Collector.
func (p *ownPace) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(lateDesc, prometheus.GaugeValue, time.Duration(p.late.Load()).Seconds())
}

// otherPaces returns the lateness of other ready replicas that report it, and their number with the
// ones that do not.
func (x *xdsShare) otherPaces() (late []time.Duration, count int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ready := range x.remote.Of(keyExtProc) {
		count++
		for _, l := range x.lates.Of(keyLate) {
			if l.Origin == ready.Origin {
				late = append(late, l.Value)
			}
		}
	}
	return late, count
}

// mergeLate takes another replica's lateness.
func mergeLate(lates *facts.Origins[time.Duration], origin string, value []byte) error {
	if value == nil {
		lates.Delete(keyLate, origin)
		return nil
	}
	ms, n := binary.Uvarint(value)
	if n != len(value) || ms > uint64(time.Hour.Milliseconds()) {
		return fmt.Errorf("server: lateness of %s is malformed", origin)
	}
	lates.Set(keyLate, origin, time.Duration(ms)*time.Millisecond)
	return nil
}
