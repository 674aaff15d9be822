package live

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/lab/demo"
)

func sampleView() View {
	v := View{
		Phase: "grapevine", Note: "Envoy asks any of the replicas", Elapsed: 52 * time.Second, Total: 70 * time.Second,
		PerSecond: 18.6, HitRatio: .956, Ideal: .979, TTFT: [2]time.Duration{45 * time.Millisecond, 72 * time.Millisecond}, Requests: 234,
	}
	for _, name := range []string{"engine-0", "engine-1"} {
		v.Engines = append(v.Engines, EngineRow{Name: name, Requests: 19, Running: 2, Waiting: 1, HitRatio: .897})
	}
	v.Replicas = []ReplicaRow{{"replica-1", "ready", 84, "2/2 exact"}, {Name: "replica-2", State: "killed"}}
	return v
}

func TestRender(t *testing.T) {
	v := sampleView()
	v.Before = &demo.Result{PerSecond: 10.8, HitRatio: .454, TTFT50: 405 * time.Millisecond, TTFT90: 11230 * time.Millisecond, Requests: 260}
	want := `Grapevine demo  grapevine    [#################.......]  52s of 70s
Envoy asks any of the replicas

                 req/s   prefix hits   TTFT p50   TTFT p90   requests   failed
  last 5 s        18.6         95.6%      45 ms      72 ms        234        0
  round robin     10.8         45.4%     405 ms     11.2 s        260        0

  engine        last 5 s  running  waiting    hits
  engine-0            19        2        1   89.7%  ***
  engine-1            19        2        1   89.7%  ***

  replica          state decisions   knowledge of engines
  replica-1        ready        84   2/2 exact
  replica-2       killed         0   
`
	if d := cmp.Diff(want, render(v)); d != "" {
		t.Error(d)
	}
}

// TestRenderFits: the table stays within a small terminal for any content.
func TestRenderFits(t *testing.T) {
	for engines := range 40 {
		v := sampleView()
		v.Note = strings.Repeat("long ", 40)
		v.PerSecond, v.Requests, v.Failed = 1e7, 1e12, 1e12
		v.Engines, v.Replicas = nil, nil
		for range engines {
			v.Engines = append(v.Engines, EngineRow{Name: "an-engine-with-a-long-name", Requests: 1e9, Running: 1e9, Waiting: 1e9})
			v.Replicas = append(v.Replicas, ReplicaRow{Name: "replica-1", State: "ready", Knowledge: strings.Repeat("exact ", 20)})
		}
		lines := strings.Split(strings.TrimSuffix(render(v), "\n"), "\n")
		if len(lines) > tableLines {
			t.Fatalf("%d engines: %d lines", engines, len(lines))
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > tableColumns {
				t.Fatalf("%d columns: %s", len(l), l)
			}
		}
	}
}

// TestScreen: on a terminal each view replaces the previous one; otherwise the output is lines
// without control characters.
func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := screen{w: &b, tty: true}
	s.show(sampleView())
	one := b.String()
	s.show(sampleView())
	if want := one + "\x1b[14A\x1b[J" + one; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	b.Reset()
	s = screen{w: &b}
	for i := range 4 {
		v := sampleView()
		if i == 3 {
			v.Note = "replica-2 was killed"
		}
		s.show(v)
	}
	line := " 52s   18.6 req/s  hits  95.6%  TTFT p50 45 ms    p90 72 ms    failed 0\n"
	want := "grapevine: Envoy asks any of the replicas\n" + line + "grapevine: replica-2 was killed\n" + line
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

func TestSummary(t *testing.T) {
	s := &Summary{
		RoundRobin: demo.Result{Requests: 260, PerSecond: 10.8, HitRatio: .454, Ideal: .97, TTFT50: 405 * time.Millisecond, TTFT90: 1123 * time.Millisecond},
		Grapevine:  demo.Result{Requests: 399, PerSecond: 16.5, HitRatio: .972, Ideal: .979, TTFT50: 43 * time.Millisecond, TTFT90: 64 * time.Millisecond},
		Killed:     "replica-3",
	}
	var b bytes.Buffer
	s.Write(&b)
	want := `
                                     round robin      Grapevine
requests (after warm-up)                     260            399
requests/s                                  10.8           16.5
cached prompt tokens, by engines           45.4%          97.2%  (ideal 97.9%)
time to first token, p50                  405 ms          43 ms  9.4× faster
time to first token, p90                 1123 ms          64 ms  17.5× faster
failed requests                                0              0

replica-3 was killed under load and came back: 0 requests failed.
Each replica read the engines' events itself; in-flight load was not shared.
OK: no request failed.
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	for l := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(l) - 1; n > tableColumns {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	s.Grapevine.Failed, s.Grapevine.LastError, s.Shared = 2, errors.New("status 503"), true
	b.Reset()
	s.Write(&b)
	if !strings.HasSuffix(b.String(), "FAILED: 2 requests failed, the last: status 503\n") || s.Failed() != 2 {
		t.Errorf("got %s", b.String())
	}
}
