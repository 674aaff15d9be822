package demo

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Limits of RunFlow's verdict.
const (
	flowOff  = .10 // largest relative deviation of a tenant's work from its share in a window
	flowOver = .10 // share by which the request limit may be exceeded
	flowIdle = .10 // mean share of capacity that may be unused while all tenants wait

	flowSteps = 3
)

// header is the table header of RunFlow.
func (s *FlowSummary) header() string {
	names := make([]string, len(s.tenants))
	for i, t := range s.tenants {
		names[i] = fmt.Sprintf("%8s", t.name)
	}
	return fmt.Sprintf("%-24s %8s %7s %s  %13s %6s", "", "answered", "failed", strings.Join(names, ""), "most of places", "idle")
}

// line formats a row of the table.
func (s *FlowSummary) line(st *FlowStep) string {
	var off strings.Builder
	for _, v := range st.Worst {
		fmt.Fprintf(&off, "%+7.1f%%", 100*v)
	}
	return fmt.Sprintf("%-24s %8d %7d %s  %8d of %d %5.1f%%", st.Name, st.answered(), st.Failed, off.String(), st.Most, s.Places, 100*st.Idle)
}

// answered returns the number of answers to all tenants.
func (st *FlowStep) answered() (n uint64) {
	for _, a := range st.Answered {
		n += a
	}
	return n
}

// Problems returns a sentence for each exceeded limit.
func (s *FlowSummary) Problems() (list []string) {
	add := func(st *FlowStep, format string, args ...any) {
		list = append(list, st.Name+": "+fmt.Sprintf(format, args...))
	}
	if len(s.Steps) < flowSteps {
		list = append(list, "not all was measured")
	}
	for i := range s.Steps {
		st := &s.Steps[i]
		for t, n := range st.Answered {
			if n == 0 {
				add(st, "no request of the %s tenant was answered", s.tenants[t].name)
			}
		}
		if st.Idle > flowIdle {
			add(st, "%.1f%% of the places were free while everybody waited", 100*st.Idle)
		}
		if st.Windows == 0 {
			add(st, "too short for a window of %v", flowWindow)
		}
		for t, v := range st.Worst {
			if math.Abs(v) > flowOff {
				add(st, "the %s tenant was %+.1f%% off its share in a window of %v", s.tenants[t].name, 100*v, flowWindow)
			}
		}
		if over := float64(st.Most)/float64(s.Places) - 1; over > flowOver {
			add(st, "%d requests were in the engines at once, which have %d places", st.Most, s.Places)
		}
		if st.Failed > 0 {
			add(st, "%d requests failed, the last with: %v", st.Failed, st.LastError)
		}
	}
	return list
}

// Write prints an explanation of the steps and the verdict.
func (s *FlowSummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%d replicas share %d places in %d engines. Tenants ask for", s.Replicas, s.Places, s.Engines)
	for i, t := range s.tenants {
		sep := ","
		if i == 0 {
			sep = ""
		}
		fmt.Fprintf(w, "%s %d", sep, t.users)
	}
	fmt.Fprintf(w, " places at once: a third is everybody's share.\nTheir columns: the largest deviation from it in any %v, in tokens of answers.\n", flowWindow)
	fmt.Fprintln(w, "most: requests in all engines at once; idle: mean share of free permits.")
	fmt.Fprintln(w, "Requests that waited at the replica that died kept their turn at another one.")
	problems := s.Problems()
	for _, p := range problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
	if len(problems) == 0 {
		fmt.Fprintf(w, "OK: every tenant was within %.0f%% of its share, the engines had at most %.0f%% more than their places, and at most %.0f%% of those were free.\n",
			100*flowOff, 100*flowOver, 100*flowIdle)
	}
}
