package demo

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestFaultsVerdict: what is over a limit is said, and only that.
func TestFaultsVerdict(t *testing.T) {
	good := FaultRow{Case: FaultCase{Name: "hangs"}, Found: time.Second, Rest: span{Requests: 200, Failed: 2, P90: 600 * time.Millisecond}, Answered: 2 * time.Second, Healthy: 4 * time.Second}
	s := &FaultsSummary{Fewer: span{P90: 550 * time.Millisecond}, Rows: []FaultRow{good}}
	if p := s.Problems(); len(p) != 0 {
		t.Errorf("a good row: %q", p)
	}
	for _, c := range []struct {
		change func(*FaultRow)
		want   string
	}{
		{func(r *FaultRow) { r.Rest.Failed, r.Rest.Error = 3, errors.New("broke") }, "1.5% of requests failed from the third second on, the last with: broke"},
		{func(r *FaultRow) { r.Rest.P90 = time.Second }, "p90 was 1.82 times"},
		{func(r *FaultRow) { r.Answered = 0 }, "did not answer again within 5s"},
		{func(r *FaultRow) { r.Answered = 6 * time.Second }, "did not answer again within 5s"},
		{func(r *FaultRow) { r.Others = 1 }, "1 healthy engines were passed over"},
	} {
		bad := good
		c.change(&bad)
		s.Rows[0] = bad
		if p := s.Problems(); len(p) != 1 || !strings.HasPrefix(p[0], "hangs: ") || !strings.Contains(p[0], c.want) {
			t.Errorf("%q, want %q", p, c.want)
		}
	}
}

// TestPacedSpans: requests are counted by when they were sent, however they
// ended and whenever.
func TestPacedSpans(t *testing.T) {
	at := time.Unix(1000, 0)
	l := &pacedLoad{sent: []sentRequest{
		{at: at, took: 9 * time.Second, engine: "a"},
		{at: at.Add(time.Second), took: time.Second, err: errors.New("broke")},
		{at: at.Add(2 * time.Second), took: 2 * time.Second, engine: "b"},
		{at: at.Add(5 * time.Second), took: time.Second, engine: "a"},
	}}
	s := l.between(at.Add(time.Second), at.Add(5*time.Second))
	if s.Requests != 2 || s.Failed != 1 || s.P90 != 2*time.Second || s.failed() != .5 {
		t.Errorf("%+v", s)
	}
	if d := l.firstFrom("a", at.Add(3*time.Second)); d != 3*time.Second {
		t.Errorf("first answer of a after 3 s came after %v more", d)
	}
	if d := l.firstFrom("c", at); d != 0 {
		t.Errorf("an answer of nobody: %v", d)
	}
}
