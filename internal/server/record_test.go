package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/server/recording"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// openQuiet opens a replica whose endpoints are not reachable.
func openQuiet(t *testing.T) *Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	file := "endpoints:\n- {name: one, address: 127.0.0.1, port: 9}\n- {name: two, address: 127.0.0.2, port: 9, labels: {zone: b}}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Endpoints: path, Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Linger: -1, Secret: "s"})
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	return s
}

// turn sends one chat turn through the chooser and ends it.
func turn(t *testing.T, s *Server, session, text string, o request.Outcome) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":%q}]}`, text)
	r := &request.Request{ID: "r", Path: "/v1/chat/completions", Body: []byte(body), Headers: http.Header{"X-Session-Id": {session}}}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	d, err := s.chooser.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	d.Observe(request.Event{Kind: request.EventHeaders, At: at, Status: 200, Served: d.Endpoints[0]})
	d.Observe(request.Event{Kind: request.EventFirstToken, At: at.Add(40 * time.Millisecond)})
	d.Observe(request.Event{Kind: request.EventTokens, At: at.Add(50 * time.Millisecond), Tokens: 7})
	o.At = at.Add(90 * time.Millisecond)
	clear(r.Body) // the stream's buffer is reused after the end
	d.Done(o)
}

func record(t *testing.T, s *Server, query string) *http.Response {
	t.Helper()
	resp, err := http.Get("http://" + s.AdminAddr().String() + "/debug/record" + query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestRecord(t *testing.T) {
	s := openQuiet(t)
	turn(t, s, "before", "not recorded", request.Outcome{Status: 200, Complete: true})
	resp := record(t, s, "")
	if resp.Header.Get(recording.Since) == "" {
		t.Error("the answer does not say when it began")
	}
	text := strings.Repeat("All work and no play. ", 400) // 8,800 bytes: 4 full blocks and a rest
	turn(t, s, "alice", text, request.Outcome{Status: 200, Complete: true})
	turn(t, s, "alice", text+strings.Repeat("More of the same. ", 200), request.Outcome{
		Status: 200, Complete: true,
		Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 3000, OutputTokens: 11, CachedTokens: 2048},
	})
	turn(t, s, "", strings.Repeat("Something else. ", 300), request.Outcome{Status: 503})
	var lines []recording.Line
	in := bufio.NewScanner(resp.Body)
	for len(lines) < 3 && in.Scan() {
		if strings.Contains(in.Text(), "work") || strings.Contains(in.Text(), "alice") {
			t.Errorf("the recording shows text: %s", in.Text())
		}
		var l recording.Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if err := in.Err(); err != nil || len(lines) != 3 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	a, b, c := lines[0], lines[1], lines[2]
	if a.Seq != 1 || b.Seq != 2 || c.Seq != 3 || a.Endpoint == "" || a.Model != "m" || a.Status != 200 || c.Status != 503 {
		t.Errorf("%+v\n%+v\n%+v", a, b, c)
	}
	if a.TTFT < 40 || a.TTFT > a.Took || a.Took < 90 || a.Output != 7 || a.Cached != nil {
		t.Errorf("outcome of the first: %+v", a)
	}
	if !b.Counted || a.Counted || b.Input != 3000 || b.Output != 11 || b.Cached == nil || *b.Cached != 2048 {
		t.Errorf("what the engine counted does not stand: %+v", b)
	}
	if a.Session == "" || a.Session != b.Session || c.Session != "" {
		t.Errorf("sessions %q %q %q", a.Session, b.Session, c.Session)
	}
	for _, l := range lines {
		if want := (l.PromptBytes + l.ChunkBytes - 1) / l.ChunkBytes; len(l.ChunkIDs) != want || want == 0 {
			t.Errorf("%d chunk ids for %d bytes", len(l.ChunkIDs), l.PromptBytes)
		}
		for _, id := range l.ChunkIDs {
			if id >= 1<<53 {
				t.Errorf("chunk id %d does not fit a float", id)
			}
		}
	}
	same := len(text) / a.ChunkBytes
	if !slices.Equal(a.ChunkIDs[:same], b.ChunkIDs[:same]) || a.ChunkIDs[same] == b.ChunkIDs[same] || a.ChunkIDs[0] == c.ChunkIDs[0] {
		t.Errorf("prefixes: %v, %v, %v", a.ChunkIDs, b.ChunkIDs, c.ChunkIDs)
	}
}

// TestRecordBounds: recordings end, are few, their rings bounded, and nothing is
// left behind.
func TestRecordBounds(t *testing.T) {
	s := openQuiet(t)
	if b, err := io.ReadAll(record(t, s, "?duration=50ms").Body); err != nil || len(b) > 0 {
		t.Errorf("a recording of nothing: %q, %v", b, err)
	}
	for range 4 {
		record(t, s, "")
	}
	if resp := record(t, s, ""); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many: %s", resp.Status)
	}
	for _, q := range []string{"?duration=soon", "?duration=-1s", "?bodies=perhaps"} {
		if resp := record(t, s, q); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", q, resp.Status)
		}
	}
}

func dry(t *testing.T, s *Server, query, body string) (int, Explained) {
	t.Helper()
	resp, err := http.Post("http://"+s.AdminAddr().String()+"/debug/explain"+query, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e Explained
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode, e
}

func TestExplainBooksNothing(t *testing.T) {
	s := openQuiet(t)
	text := strings.Repeat("All work and no play. ", 400)
	turn(t, s, "alice", text, request.Outcome{Status: 200, Complete: true})
	before := len(s.scheduler.Records().Last(10))
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text)
	code, e := dry(t, s, "?path=/v1/chat/completions", body)
	if code != http.StatusOK || e.Refused != "" || len(e.Candidates) != 2 || e.Choice == "" {
		t.Fatalf("%d %+v", code, e)
	}
	held := 0
	for _, c := range e.Candidates {
		held += c.Matched["gpu"]
		if c.Load.Requests != 0 {
			t.Errorf("%s has %d requests", c.Endpoint, c.Load.Requests)
		}
	}
	if held == 0 || e.Prompt.Space != "chunks" || e.Knowledge["127.0.0.1:9"] == "" {
		t.Errorf("what was sent before is not found: %+v", e)
	}
	if n := len(s.scheduler.Records().Last(10)); n != before {
		t.Errorf("the dry run left a record")
	}
	if _, e = dry(t, s, "?path=/v1/chat/completions&subset=127.0.0.2:9", body); e.Choice != "127.0.0.2:9" {
		t.Errorf("subset: choice %q", e.Choice)
	}
	if _, e = dry(t, s, "?path=/v1/chat/completions&subset=", body); e.Refused == "" {
		t.Errorf("empty subset: %+v", e)
	}
	for _, bad := range [][2]string{{"", body}, {"?path=/v1/completions", "{"}} {
		if code, _ := dry(t, s, bad[0], bad[1]); code != http.StatusBadRequest {
			t.Errorf("%s %s: %d", bad[0], bad[1], code)
		}
	}
}

// TestFactsRestore: a saved status makes a pool with the same data.
func TestFactsRestore(t *testing.T) {
	s := openQuiet(t)
	ep := s.pool.Snapshot().Endpoints[1]
	now := time.Now()
	ep.SetGauges(endpoint.Gauges{At: now, Values: gauge.Values{Waiting: 3, Running: 4, KVUse: .5}, BlockSize: 16, Blocks: 100, LoRA: &endpoint.LoRA{Max: 2, Running: []string{"a"}}})
	ep.SetPriorCost(endpoint.Cost{Base: 1, PerToken: 2, PerPair: 3, Step: 4, PerSeq: 5, PerContext: 6})
	want := endpoint.Load{Requests: 5, Waiting: 2, Prefill: 700, Pairs: 90, Tokens: 800, Context: 100, Rate: .5, Busy: .25, LastFirst: now.Add(-time.Second).UnixNano()}
	s.pool.LoadTracker().SetRemote(ep, want)

	b, err := json.Marshal(s.reporter.endpointStatus(ep, now))
	if err != nil {
		t.Fatal(err)
	}
	var e saved.Endpoint
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	spec, ok := e.Spec()
	if !ok || spec.Labels["zone"] != "b" {
		t.Fatalf("%+v", spec)
	}
	p := endpoint.NewPool(endpoint.PoolOptions{})
	p.Set([]endpoint.Spec{spec})
	got := p.Snapshot().Endpoints[0]
	later := now.Add(time.Hour)
	e.Restore(p, got, later)
	want.LastFirst = later.Add(-time.Second).UnixNano()
	if l := p.LoadTracker().Load(got, later); l != want {
		t.Errorf("load %+v, want %+v", l, want)
	}
	g := got.Gauges()
	if g.Waiting != 3 || g.KVUse != .5 || g.Blocks != 100 || got.LoRA() == nil || got.Cost().PerPair != 3 || !got.Down() != (e.Up || e.Health.State == "unreached") {
		t.Errorf("%+v %+v %+v", g, got.LoRA(), got.Cost())
	}
}
