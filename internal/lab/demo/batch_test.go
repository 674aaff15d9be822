package demo

import (
	"strings"
	"testing"
	"time"
)

// TestBatchVerdict checks that exactly the exceeded limits are reported.
func TestBatchVerdict(t *testing.T) {
	rows := func() []BatchRow {
		first := func(d time.Duration) []time.Duration { return []time.Duration{d / 2, d} }
		return []BatchRow{
			{Name: "alone", Requests: 2, First: first(300 * time.Millisecond)},
			{Name: "no queue", Requests: 2, First: first(9 * time.Second), TokensASecond: 1000, EnginesWaiting: 250},
			{Name: "queue", Requests: 2, First: first(389 * time.Millisecond), TokensASecond: 951, EnginesWaiting: 4},
		}
	}
	s := &BatchSummary{Engines: 6, Rows: rows()}
	if p := s.Problems(); len(p) != 0 {
		t.Errorf("good rows: %q", p)
	}
	for _, c := range []struct {
		change func([]BatchRow)
		want   string
	}{
		{func(r []BatchRow) { r[2].First[1] = 400 * time.Millisecond }, "1.33 times"},
		{func(r []BatchRow) { r[2].TokensASecond = 940 }, "94.0% of the tokens"},
		{func(r []BatchRow) { r[1].Failed = 1 }, "no queue: 1 of 2 requests failed"},
		{func(r []BatchRow) { r[1].BatchFailed = 7 }, "no queue: 7 batch requests failed"},
		{func(r []BatchRow) { r[1].EnginesWaiting = 3 }, "batch does not fill them"},
		{func(r []BatchRow) { r[2].EnginesWaiting = 13 }, "13.0 requests wait in the engines behind the queue"},
	} {
		s.Rows = rows()
		c.change(s.Rows)
		if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], c.want) {
			t.Errorf("%q, want %q", p, c.want)
		}
	}
}
