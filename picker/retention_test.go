package picker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// decideN makes n decisions, one every step, and returns the scheduler.
func decideN(t *testing.T, keep Retention, n int, step time.Duration) *Scheduler {
	t.Helper()
	now := t0
	s := newScheduler(t, Options{Pool: newPool(8), Records: keep, Now: func() time.Time { return now }})
	for i := range n {
		now = now.Add(step)
		d, err := s.Choose(context.Background(), chatRequest(fmt.Sprint("r", i), 100))
		if err != nil {
			t.Fatal(err)
		}
		if d.Number != uint64(i+1) {
			t.Fatalf("decision %d has the number %d", i+1, d.Number)
		}
		d.Done(request.Outcome{At: now, Status: 200})
	}
	return s
}

// TestRecordsAreKeptByAge: decisions are kept for their time, and the last ones longer.
func TestRecordsAreKeptByAge(t *testing.T) {
	s := decideN(t, Retention{Age: time.Minute, Least: 10, Bytes: 1 << 30}, 1000, time.Second)
	if n := len(s.Records().Last(1000)); n < 60 || n > 62 {
		t.Errorf("%d decisions are kept, want those of a minute", n)
	}
	s = decideN(t, Retention{Age: time.Minute, Least: 10, Bytes: 1 << 30}, 100, time.Hour)
	if n := len(s.Records().Last(1000)); n < 10 || n > 11 {
		t.Errorf("%d decisions are kept, want the last 10", n)
	}
}

// TestRecordsAreKeptByBytes: the memory of decisions stays within its limit, however many there are.
func TestRecordsAreKeptByBytes(t *testing.T) {
	const limit = 256 << 10
	s := decideN(t, Retention{Age: time.Hour, Bytes: limit}, 3000, time.Millisecond)
	rs := s.Records()
	sum := 0
	for n := rs.first; n < rs.next; n++ {
		sum += rs.at(n).bytes
	}
	if kept := rs.next - rs.first; sum != rs.bytes || sum > limit || kept < 10 || kept >= 3000 {
		t.Errorf("%d decisions of %d bytes are kept, counted as %d, want at most %d bytes", kept, sum, rs.bytes, limit)
	}
	if e, ok := rs.Numbered(3000); !ok || e.RequestID != "r2999" || e.Number != 3000 {
		t.Errorf("Numbered(3000) = %q, %v", e.RequestID, ok)
	}
	if _, ok := rs.Numbered(1); ok {
		t.Error("the first decision is still kept")
	}
	for n, rec := range rs.ring {
		if rec != nil && rec.number%uint64(len(rs.ring)) != uint64(n) {
			t.Errorf("record %d is at %d", rec.number, n)
		}
	}
}

// TestRecordingDoesNotAllocate: once the store is full, recording reuses its memory.
func TestRecordingDoesNotAllocate(t *testing.T) {
	s := decideN(t, Retention{Age: time.Minute, Bytes: 1 << 20}, 500, time.Second)
	rs, now := s.Records(), t0.Add(time.Hour)
	p := s.prepare(context.Background(), cleared{admitted: admitted{s.resolve(chatRequest("r", 100), s.rules.Load(), 1)}}, now)
	defer s.free(p)
	if err := s.rank(p); err != nil {
		t.Fatal(err)
	}
	c := p.cycle
	for range 200 {
		c.Now = c.Now.Add(time.Second)
		rs.add(c, c.Expected())
	}
	if n := testing.AllocsPerRun(100, func() { c.Now = c.Now.Add(time.Second); rs.add(c, c.Expected()) }); n != 0 {
		t.Errorf("%v allocations for each recorded decision, want 0", n)
	}
}
