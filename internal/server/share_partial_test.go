package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// Replicas that start after the engines' replay rings have wrapped have only a part of the cache
// contents. The group and each endpoint report this with the same word, and the replicas accept
// requests.
func TestGroupAndEndpointsAgreeOnWhatIsKnown(t *testing.T) {
	g := newGroup(t, 0, 8, "mesh")
	g.churn(120)
	g.add()
	g.add()
	g.ready(g.replicas...)
	for _, s := range g.replicas {
		testkit.Eventually(g.t, func() string {
			partial := 0
			st := s.Status()
			for _, e := range st.Endpoints {
				if e.Knowledge == knowledge.Partial.String() {
					partial++
				}
				if e.Complete || e.Reason == "" && e.Knowledge == knowledge.Partial.String() {
					return fmt.Sprintf("%+v", e)
				}
			}
			line := st.Cluster.Line
			if partial != groupEngines || !strings.Contains(line, fmt.Sprintf("%d sources known in part", groupEngines)) {
				return fmt.Sprintf("%d endpoints are partial: %s", partial, line)
			}
			return ""
		})
		testkit.Eventually(t, func() string {
			if st := s.Status(); st.State != "ready" {
				return st.State + ": " + st.Reason
			}
			return ""
		})
	}
}
