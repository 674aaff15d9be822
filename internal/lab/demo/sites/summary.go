package sites

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Limits of the verdict.
const (
	gain   = .5 // limit of the p90 with the import, as a share of A's p90 alone
	mostly = .8 // minimum share of the prompts that must go to B; at most one of the others may
)

const (
	hotHeader   = "prompts asked in A, nothing else asked     asked  served by B  mean TTFT"
	sceneHeader = "scene                    requests  failed  by B   TTFT p50   p90      known after"
)

func (s *HotScene) line() string {
	return fmt.Sprintf("  %-38s %7d %12d %10s", s.Name, s.Asked, s.AtB, ms(s.TTFT))
}

func (s *Scene) line() string {
	known := ""
	if s.Limit > 0 {
		known = fmt.Sprintf("%8.1f s", s.Known.Seconds())
	}
	return fmt.Sprintf("%-24s %8d %7d %4.0f%% %10s %9s %s", s.Name, s.Requests, s.Failed, 100*s.share(), ms(s.TTFT50), ms(s.TTFT90), known)
}

// share returns B's share of the answers.
func (s *Scene) share() float64 { return float64(s.AtB) / float64(max(s.Requests-s.Failed, 1)) }

// count counts the requests that began in the scene. changes are the times of cuts and kills,
// including the start of the scene. Requests that were in flight at B at one of these times may
// break and do not count as failed.
func (s *Scene) count(ended []answered, b map[string]bool, changes []time.Time) {
	s.Requests, s.Failed, s.AtB, s.Broken = 0, 0, 0, 0
	var firsts []time.Duration
	for i := range ended {
		a := &ended[i]
		if a.err != nil && a.begun.Before(s.changed) && a.at.After(s.change) && !s.Helped {
			s.Broken++
			continue
		}
		if a.begun.Before(s.begun) || !a.begun.Before(s.ended) {
			continue
		}
		s.Requests++
		switch broke := slices.ContainsFunc(changes, func(t time.Time) bool { return a.begun.Before(t) && a.at.After(t) }); {
		case a.err != nil && !broke:
			s.Failed++
		case a.err == nil:
			firsts = append(firsts, a.first)
			if b[a.engine] {
				s.AtB++
			}
		}
	}
	slices.Sort(firsts)
	if n := len(firsts); n > 0 {
		s.TTFT50, s.TTFT90 = firsts[n/2], firsts[n*9/10]
	}
}

// Problems returns a sentence for each exceeded limit.
func (s *Summary) Problems() (list []string) {
	for i := range s.Hot {
		h := &s.Hot[i]
		switch {
		case h.Failed > 0:
			list = append(list, fmt.Sprintf("%s: %d requests failed", h.Name, h.Failed))
		case h.Must && float64(h.AtB) < mostly*float64(h.Asked):
			list = append(list, fmt.Sprintf("%s: %d of %d went to B, though that pays", h.Name, h.AtB, h.Asked))
		case !h.Must && h.AtB > 1:
			list = append(list, fmt.Sprintf("%s: %d of %d went to B, though that does not pay", h.Name, h.AtB, h.Asked))
		}
	}
	for i := range s.Scenes {
		list = append(list, s.Scenes[i].problems(&s.Scenes[max(i-1, 0)])...)
	}
	return list
}

// problems compares a scene with the previous one, in which A was alone.
func (s *Scene) problems(alone *Scene) (list []string) {
	add := func(format string, args ...any) {
		list = append(list, s.Name+": "+fmt.Sprintf(format, args...))
	}
	if s.Failed > 0 {
		add("%d requests failed that A could serve", s.Failed)
	}
	if s.Limit > 0 && s.Known > s.Limit {
		add("A knew after %.1f s, later than %v", s.Known.Seconds(), s.Limit)
	}
	if s.Helped && float64(s.TTFT90) > gain*float64(alone.TTFT90) {
		add("p90 of the first token is %s, not below half of %s", ms(s.TTFT90), ms(alone.TTFT90))
	}
	switch {
	case s.Helped && s.AtB == 0:
		add("B served nothing")
	case !s.Helped && s.AtB > 0:
		add("B served %d requests, and could not be reached", s.AtB)
	}
	if s.Requests < s.Least {
		add("%d requests ended, of those offered at least %d have to", s.Requests, s.Least)
	}
	return list
}

// Write prints the scenes and the verdict once all requests have ended.
func (s *Summary) Write(w io.Writer) {
	fmt.Fprintf(w, "\nWhen all had ended:\n%s\n", sceneHeader)
	broken := 0
	for i := range s.Scenes {
		fmt.Fprintln(w, s.Scenes[i].line())
		broken += s.Scenes[i].Broken
	}
	fmt.Fprintln(w, "Requests count where they began. Known after: until every replica of A saw B as it was.")
	fmt.Fprintf(w, "Besides, %d requests were at B when the link was cut or B died, and broke.\n", broken)
	problems := s.Problems()
	for _, p := range problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
	switch {
	case len(problems) > 0 && s.LastError != nil:
		fmt.Fprintln(w, "The last error:", s.LastError)
	case len(problems) == 0:
		fmt.Fprintln(w, "OK: with B, A's slowest tenth waits less than half as long; nothing failed that A could serve; all was known in time.")
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
