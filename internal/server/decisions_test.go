package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// askDecision reads /debug/decisions of a replica.
func askDecision(t *testing.T, s *Server, query string) (list []explanation.Explanation, silent string) {
	t.Helper()
	resp, err := http.Get("http://" + s.AdminAddr().String() + "/debug/decisions?" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list, resp.Header.Get(admin.HeaderSilent)
}

// TestDecisionsOfTheGroup: every replica explains the decision of any replica, by the request's id and
// by the identifier that the client gets. Without a group question, only the deciding replica has it.
func TestDecisionsOfTheGroup(t *testing.T) {
	g := newGroupWith(t, 3, 10000, group{share: "mesh", change: func(o *Options) { o.DecisionHeader = true }})
	r := &request.Request{ID: "request-1", Path: "/v1/completions", Headers: none{}, Body: fmt.Appendf(nil, `{"model":%q,"prompt":"hello"}`, vocab.Name)}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	d, err := g.replicas[1].chooser.Choose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true})
	at := slices.IndexFunc(d.AnswerHeaders, func(h request.HeaderSet) bool { return h.Name == request.HeaderDecision })
	if at < 0 {
		t.Fatalf("answer headers %v, want %s", d.AnswerHeaders, request.HeaderDecision)
	}
	id := d.AnswerHeaders[at].Value
	if !strings.HasPrefix(id, "replica-1-") || !strings.HasSuffix(id, ".1") {
		t.Errorf("identifier %q, want the first decision of replica-1", id)
	}
	for i, s := range g.replicas {
		for _, query := range []string{"request_id=request-1", "id=" + id} {
			testkit.Eventually(t, func() string {
				list, silent := askDecision(t, s, query)
				if len(list) == 1 && silent == "" && list[0].Replica == "replica-1" && list[0].Decision == id && list[0].RequestID == "request-1" && list[0].Choice == d.Endpoints[0] && len(list[0].Candidates) == groupEngines {
					return ""
				}
				return fmt.Sprintf("replica %d answers %s with %+v, silent %q", i, query, list, silent)
			})
		}
		if list, _ := askDecision(t, s, "request_id=request-1&local"); (len(list) == 1) != (i == 1) {
			t.Errorf("replica %d has %d decisions of its own", i, len(list))
		}
	}
	if list, silent := askDecision(t, g.replicas[0], "request_id=nobody"); len(list) != 0 || silent != "" {
		t.Errorf("%d decisions about an unknown request, silent %q", len(list), silent)
	}
}

// TestShorten: a decision that is too large for the group keeps its choice and the first candidates.
func TestShorten(t *testing.T) {
	var e explanation.Explanation
	e.Profiles = make([]explanation.Profile, 1)
	for i := range 128 {
		name := fmt.Sprint("e", i)
		e.Candidates = append(e.Candidates, explanation.Candidate{Endpoint: name})
		e.Profiles[0].Rows = append(e.Profiles[0].Rows, explanation.Row{Endpoint: name})
		e.Avoided = append(e.Avoided, explanation.Avoided{Endpoint: name})
	}
	e.Choice, e.RunnerUp = "e100", "e101"
	shorten(&e)
	if n := len(e.Candidates); n != peerCandidates || e.Omitted != 128-n || len(e.Profiles[0].Rows) != n || len(e.Avoided) != peerCandidates {
		t.Errorf("%d candidates, %d omitted, %d rows, %d avoided", n, e.Omitted, len(e.Profiles[0].Rows), len(e.Avoided))
	}
	if !slices.ContainsFunc(e.Candidates, func(c explanation.Candidate) bool { return c.Endpoint == "e100" }) {
		t.Error("the choice is missing")
	}
}
