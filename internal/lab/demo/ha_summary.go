package demo

import (
	"fmt"
	"io"
)

// Write prints the summary.
func (s *HASummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%-28s %8s %10s %8s %14s %14s\n", "step", "took", "requests", "failed", "hits, answers", "hits, sent")
	for _, st := range s.Steps {
		fmt.Fprintf(w, "%-28s %7.1fs %10d %8d %13.1f%% %13.1f%%\n", st.Name, st.Took.Seconds(), st.Requests, st.Failed, 100*st.HitRatio, 100*st.SentRatio)
	}
	fmt.Fprintln(w, "Hits are what engines report: of the answers that ended in a step, and of the requests that were sent in it, whenever they ended.")
	fmt.Fprintf(w, "\n%d engines, %d replicas in an encrypted gossip group.\n", s.Engines, s.Replicas)
	fmt.Fprintf(w, "A replica that was started anew knew every engine exactly after %d ms.\n", s.Newcomer.Milliseconds())
	fmt.Fprintf(w, "With every replica dead, Envoy answered %d requests by its fallback policy.\n", s.FallbackRequests)
	if s.OK() {
		fmt.Fprintln(w, "OK: no request failed.")
	} else {
		fmt.Fprintf(w, "FAILED: %d requests failed, the last one with: %v\n", s.Failed(), s.LastError)
	}
}
