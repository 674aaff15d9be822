package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
)

// endpoint returns a healthy endpoint.
func endpoint(address string, inFlight int64) server.EndpointStatus {
	return server.EndpointStatus{Address: address, Up: true, InFlight: inFlight, Knowledge: "exact", Health: server.HealthStatus{State: "healthy"}}
}

// replica returns the status of a replica with n endpoints and faults of the first two.
func replica(name string, n int) *server.Status {
	st := &server.Status{Name: name, State: "ready", UptimeS: 60, Cluster: server.ClusterStatus{OK: true, State: "joined", Line: "joined"}}
	for i := range n {
		st.Endpoints = append(st.Endpoints, endpoint(fmt.Sprintf("10.0.0.%d:8000", i), int64(i)))
	}
	var l problems.List
	l.Add(problems.Suspect, "10.0.0.0:8000", "late")
	l.Add(problems.NoEndpoint, "", "for the test")
	st.Problems = l.Found()
	st.Endpoints[0].Problems, st.Endpoints[1].Problems = []problems.Code{problems.Suspect}, []problems.Code{problems.Hung}
	st.Endpoints[0].Health.State, st.Endpoints[1].Health.State = "suspect", "out"
	for i := range 9 {
		state := "up"
		if i == 5 {
			state = "down"
		}
		st.Members = append(st.Members, server.MemberStatus{Name: fmt.Sprintf("replica-%d", i), State: state, Phase: "settled"})
	}
	return st
}

func at(second float64, list ...reading) readings {
	return readings{at: time.Unix(0, int64(1e9*second)), list: list}
}

// TestFrames: frames of every size are exactly as large as the terminal, and have the most urgent
// problem, the keys and at least one endpoint.
func TestFrames(t *testing.T) {
	st := replica("a", 200)
	b := newBoard(at(0, reading{status: st}), at(1, reading{status: st}))
	for _, help := range []bool{false, true} {
		for _, width := range []int{40, 80, 120, 200, 300} {
			for _, height := range []int{10, 24, 50, 100} {
				frame := b.frame(&state{selected: -1, help: help}, width, height)
				if len(frame) != height {
					t.Errorf("%dx%d: %d lines", width, height, len(frame))
				}
				for _, l := range frame {
					n := 0
					for _, s := range l {
						n += uniseg.StringWidth(s.text)
					}
					if n != width {
						t.Errorf("%dx%d: line of %d cells: %v", width, height, n, l)
					}
				}
				out := text(frame)
				if !strings.Contains(out, "GV5001") != help || !strings.Contains(out, "q ") {
					t.Errorf("%dx%d:\n%s", width, height, out)
				}
				if !help && !strings.Contains(out, "10.0.0.1:8000") {
					t.Errorf("%dx%d: the endpoint with trouble is not shown:\n%s", width, height, out)
				}
			}
		}
	}
}

// TestOrder: the problem with the highest severity is first, endpoints with trouble come first by
// its severity, and each sorting orders by its column.
func TestOrder(t *testing.T) {
	st := replica("a", 4)
	b := newBoard(at(0, reading{status: st}), at(1, reading{status: st}))
	order := func(s *state) (list []string) {
		for _, r := range b.shown(s) {
			list = append(list, r.Address[7:8])
		}
		return list
	}
	want := map[string]string{"trouble": "1 0 2 3", "endpoint": "0 1 2 3", "in flight": "3 2 1 0"}
	for i, s := range sortings {
		if w, ok := want[s.name]; ok && strings.Join(order(&state{sort: i}), " ") != w {
			t.Errorf("%s: %v, want %s", s.name, order(&state{sort: i}), w)
		}
	}
	if got := order(&state{filter: "OUT"}); len(got) != 1 || got[0] != "1" {
		t.Errorf("filter: %v", got)
	}
	if b.problems[0].Code != problems.NoEndpoint {
		t.Errorf("first problem %s", b.problems[0].Code)
	}
	out := text(b.frame(&state{selected: -1}, 80, 0))
	if strings.Index(out, "replica-5") > strings.Index(out, "replica-0") {
		t.Errorf("the replica with trouble is not first:\n%s", out)
	}
}

// TestRates: rates are sums over the replicas that answered. A restarted replica counts from its
// restart, and one that does not answer is a problem.
func TestRates(t *testing.T) {
	traffic := func(name string, uptime float64, requests, errors, prompt, cached uint64) reading {
		st := replica(name, 2)
		st.UptimeS, st.Traffic = uptime, outcomes.Totals{Requests: requests, Errors: errors}
		st.Endpoints[0].Traffic = outcomes.EndpointTotals{Requests: requests, Errors: errors, PromptTokens: prompt, CachedTokens: cached}
		return reading{address: name, status: st}
	}
	var h history
	h.add(at(0, traffic("a", 10, 100, 0, 1000, 0), traffic("b", 10, 50, 10, 0, 0)))
	b := h.add(at(2, traffic("a", 12, 120, 4, 2000, 750), traffic("b", 12, 60, 10, 0, 0)))
	if b.requests != 15 || b.errors != 2 || b.cached != 750 || b.prompt != 1000 || b.endpoints[0].requests != 15 {
		t.Errorf("%.1f requests, %.1f errors, %d of %d tokens", b.requests, b.errors, b.cached, b.prompt)
	}
	b = h.add(at(4, traffic("a", 1, 500, 0, 0, 0), reading{address: "b", err: errors.New("gone")}))
	if b.requests != 0 || b.answered != 1 || b.problems[0].Code != problems.NoEndpoint || !strings.Contains(text(b.frame(&state{selected: -1}, 120, 0)), "GV8011 warning: no replica answers: b: gone") {
		t.Errorf("%.1f requests, %d answered, %v", b.requests, b.answered, b.problems)
	}
	for i := range 30 {
		b = h.add(at(float64(10+i), traffic("a", float64(10+i), uint64(100*i), 0, 0, 0), traffic("b", 1, 0, 0, 0, 0)))
	}
	if b.requests != 100 || b.seconds != 10 {
		t.Errorf("%.1f requests per second over %.0f s", b.requests, b.seconds)
	}
}

// TestClean: texts of strangers take exactly their cells and have no control characters.
func TestClean(t *testing.T) {
	for _, s := range []string{"gold\x1b[2J\x07", "a\nFORGED\tb", "\u202e4201\u2066\u200b", "\xff\xc3\x9b2J", strings.Repeat("\u0301", 500), "g" + strings.Repeat("\u0301", 500), "日本語のモデル", "🇩🇪👩‍👩‍👧", strings.Repeat("x", 1000), ""} {
		for _, width := range []int{0, 1, 2, 5, 20} {
			for _, right := range []bool{false, true} {
				got := fit(s, width, right)
				if uniseg.StringWidth(got) != width || len(got) > 40*(width+1) {
					t.Errorf("fit(%q, %d) = %q: %d cells", s, width, got, uniseg.StringWidth(got))
				}
				if strings.ContainsAny(got, "\x1b\n\t\x07\u202e\u2066\u200b") {
					t.Errorf("fit(%q, %d) = %q", s, width, got)
				}
			}
		}
	}
}
