package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
)

// Growth over the second half of a soak that counts as flat.
const (
	flatShare = .05     // of the mean
	flatRSS   = 4 << 20 // bytes, if larger
	flatLive  = 2 << 20 // bytes of live heap, if larger
	flatGo    = 10      // goroutines, if larger
)

// settled is when memory may be flat: replicas keep decisions for ten minutes. A judgement needs judged
// after that.
const (
	settled = 11 * time.Minute
	judged  = 4 * time.Minute
)

// from is the time of the first sample that counts: after half of the soak, and not before settled. ok is
// false if the soak is too short to judge memory. Then the second half is only printed.
func (s *SoakSummary) from() (at time.Duration, ok bool) {
	if s.Length < settled+judged {
		return s.Length / 2, false
	}
	return max(s.Length/2, settled), true
}

// flat reports whether the growth is below flatShare of the mean, or below least.
func flat(g bench.Growth, least float64) bool { return g.Over <= max(flatShare*g.Mean, least) }

// growth returns the growth of a figure of a replica over the samples that count.
func (s *SoakSummary) growth(replica int, figure func(*SoakSample) float64) bench.Growth {
	var at []time.Duration
	var value []float64
	from, _ := s.from()
	for i := range s.Samples {
		if x := &s.Samples[i]; x.Replica == replica && x.At >= from {
			at, value = append(at, x.At), append(value, figure(x))
		}
	}
	return bench.Fit(at, value)
}

func rss(x *SoakSample) float64        { return float64(x.RSS) }
func live(x *SoakSample) float64       { return float64(x.Live) }
func goroutines(x *SoakSample) float64 { return float64(x.Goroutines) }

// mostAlarms is how many false alarms Write prints.
const mostAlarms = 30

// maxMissed is the share of samples that may be missing.
const maxMissed = .1

// Problems returns a sentence for each figure that was not flat over the samples that count. Resident
// memory, live heap or goroutines of a replica may not grow by more than 5% and by more than 4 MiB,
// 2 MiB, or ten goroutines. Memory is not judged in a soak that is too short. Healthy engines out of service and
// too many missing samples are problems too.
func (s *SoakSummary) Problems() (list []string) {
	if rounds := s.Missed + len(s.Samples)/max(s.Replicas, 1); float64(s.Missed) > maxMissed*float64(rounds) {
		list = append(list, fmt.Sprintf("%d of %d times a replica did not answer when samples were taken", s.Missed, rounds))
	}
	if n := len(s.Alarms); n > 0 {
		list = append(list, fmt.Sprintf("%d times a replica took a healthy engine out of service, first: %s", n, s.Alarms[0]))
	}
	_, long := s.from()
	for i := range s.Replicas {
		if g := s.growth(i, rss); g.Mean == 0 {
			list = append(list, fmt.Sprintf("replica-%d has no samples of the second half", i+1))
		} else if long && !flat(g, flatRSS) {
			list = append(list, fmt.Sprintf("replica-%d: resident memory grew by %.1f MB at %.1f MB", i+1, g.Over/(1<<20), g.Mean/(1<<20)))
		}
		if g := s.growth(i, live); long && !flat(g, flatLive) {
			list = append(list, fmt.Sprintf("replica-%d: live heap grew by %.1f MB at %.1f MB", i+1, g.Over/(1<<20), g.Mean/(1<<20)))
		}
		if g := s.growth(i, goroutines); !flat(g, flatGo) {
			list = append(list, fmt.Sprintf("replica-%d: %.0f goroutines more at %.0f", i+1, g.Over, g.Mean))
		}
	}
	return list
}

// Write prints the summary.
func (s *SoakSummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %d replicas, %d engines (%d restarts), %d requests (%d failed, with an engine that restarted), %.0f blocks stored per second and, with full caches, as many removed.\n",
		s.Length, s.Replicas, s.Engines, s.Restarts, s.Requests, s.Failed, float64(s.Stored)/s.Length.Seconds())
	from, _ := s.from()
	fmt.Fprintf(w, "\n%-11s %22s %22s %18s %8s\n", "after "+from.Round(time.Second).String(), "RSS, growth", "live heap, growth", "goroutines", "dropped")
	mb := func(v float64) string { return fmt.Sprintf("%.1f MB", v/(1<<20)) }
	for i := range s.Replicas {
		m, h, g := s.growth(i, rss), s.growth(i, live), s.growth(i, goroutines)
		fmt.Fprintf(w, "%-11s %12s %+6.1f MB %12s %+6.1f MB %10.0f %+7.1f %8d\n", fmt.Sprintf("replica-%d", i+1),
			mb(m.Mean), m.Over/(1<<20), mb(h.Mean), h.Over/(1<<20), g.Mean, g.Over, s.dropped(i))
	}
	fmt.Fprintf(w, "\nIn %d looks at the states of engines, %d healthy engines were taken out of service.\n", s.Looks, len(s.Alarms))
	for _, a := range s.Alarms[:min(len(s.Alarms), mostAlarms)] {
		fmt.Fprintln(w, " ", a)
	}
	problems := s.Problems()
	for _, p := range problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
	_, long := s.from()
	switch {
	case len(problems) > 0:
	case long:
		fmt.Fprintln(w, "OK: memory and goroutines are flat, and no healthy engine was taken out of service.")
	default:
		fmt.Fprintln(w, "OK: goroutines are flat, and no healthy engine was taken out of service.")
	}
	if !long {
		fmt.Fprintf(w, "Memory was not judged: it grows until decisions are old enough to be dropped. A judgement takes %s.\n", settled+judged)
	}
}

// dropped returns the last drop counter of a replica.
func (s *SoakSummary) dropped(replica int) (n uint64) {
	for i := range s.Samples {
		if s.Samples[i].Replica == replica {
			n = s.Samples[i].Dropped
		}
	}
	return n
}
