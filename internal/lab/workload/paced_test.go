package workload

import (
	"errors"
	"testing"
	"time"
)

// TestPacedSpans checks that requests count at their sending time, independent of their result and
// end.
func TestPacedSpans(t *testing.T) {
	at := time.Unix(1000, 0)
	l := &Paced{sent: []pacedRequest{
		{at: at, took: 9 * time.Second, engine: "a"},
		{at: at.Add(time.Second), took: time.Second, err: errors.New("broke")},
		{at: at.Add(2 * time.Second), took: 2 * time.Second, engine: "b"},
		{at: at.Add(5 * time.Second), took: time.Second, engine: "a"},
	}}
	s := l.Between(at.Add(time.Second), at.Add(5*time.Second))
	if s.Requests != 2 || s.Failed != 1 || s.P90 != 2*time.Second || s.FailedShare() != .5 {
		t.Errorf("%+v", s)
	}
	if d := l.FirstFrom("a", at.Add(3*time.Second)); d != 3*time.Second {
		t.Errorf("first answer of a after 3 s came after %v more", d)
	}
	if d := l.FirstFrom("c", at); d != 0 {
		t.Errorf("an answer without a server: %v", d)
	}
}
