package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// TestFaultsVerdict checks that exactly the exceeded limits are reported.
func TestFaultsVerdict(t *testing.T) {
	good := FaultRow{Case: FaultCase{Name: "hangs"}, Found: time.Second, Rest: workload.Span{Requests: 200, Failed: 2, P90: 600 * time.Millisecond}, Answered: 2 * time.Second, Healthy: 4 * time.Second}
	s := &FaultsSummary{Fewer: workload.Span{P90: 550 * time.Millisecond}, Rows: []FaultRow{good}}
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

// TestFaultsTable checks that rows form a Markdown table.
func TestFaultsTable(t *testing.T) {
	s := &FaultsSummary{Fewer: workload.Span{P90: 500 * time.Millisecond}}
	r := FaultRow{
		Case: FaultCase{Name: "hangs"}, Found: 1800 * time.Millisecond, Cause: "stalled", First: workload.Span{Requests: 72, Failed: 1},
		Rest: workload.Span{Requests: 200, P90: 530 * time.Millisecond}, Answered: time.Second,
	}
	want := "| hangs | 1.8 s | `stalled` | 1/72 (1.4%) | 0/200 (0.0%) | 1.06× | 1.0 s | - |"
	if got := strings.Join(strings.Fields(s.line(&r)), " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
