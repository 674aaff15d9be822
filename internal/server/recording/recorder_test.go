package recording

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func testRecorder() *Recorder {
	return New(block.NewHasher(block.Seed{}), nil, prometheus.NewRegistry())
}

// TestRingIsFull: lines that exceed a slow reader's buffer are dropped but still numbered.
func TestRingIsFull(t *testing.T) {
	r := testRecorder()
	rec := &recording{ring: make(chan Line, 1)}
	rec.pending.Add(2)
	rec.put(Line{}, r.dropped)
	rec.put(Line{}, r.dropped)
	if n := len(rec.ring); n != 1 || rec.pending.Load() != 0 || rec.seq.Load() != 2 {
		t.Errorf("%d lines wait, %d pending, %d numbered", n, rec.pending.Load(), rec.seq.Load())
	}
}

// TestBodies: a recording with bodies requests response bodies and uses the engine's counts. When
// it is closed, no resource stays in use.
func TestBodies(t *testing.T) {
	r := testRecorder()
	rec := &recording{ring: make(chan Line, 1), bodies: true}
	r.open(rec)
	d := &request.Decision{Endpoints: []string{"127.0.0.1:9"}}
	r.Attach(d, &request.Request{InputTokens: 3000})
	if !d.WantBody {
		t.Error("bodies are not asked for")
	}
	d.Done(request.Outcome{Status: 200})
	if l := <-rec.ring; l.Output != 0 || l.Input != 3000 {
		t.Errorf("%+v", l)
	}
	if r.close(rec); r.active.Load() != nil {
		t.Error("the recording is still there")
	}
}

// TestLineHasOutcome: a recorded line has the status, endpoint and token count of the request's end, and the
// counted tokens if the engine reports none.
func TestLineHasOutcome(t *testing.T) {
	for _, c := range []struct {
		o      request.Outcome
		output int
	}{
		{request.Outcome{Status: 206, Served: "10.0.0.2:8000"}, 9},
		{request.Outcome{Status: 206, Served: "10.0.0.2:8000", Usage: request.Usage{Seen: true, OutputTokens: 11}}, 11},
	} {
		l := Line{Endpoint: "10.0.0.1:8000"}
		l.end(c.o, 9)
		if l.Status != 206 || l.Endpoint != "10.0.0.2:8000" || l.Output != c.output {
			t.Errorf("end(%+v): status %d, endpoint %s, %d tokens, want 206, the serving one and %d", c.o, l.Status, l.Endpoint, l.Output, c.output)
		}
	}
}
