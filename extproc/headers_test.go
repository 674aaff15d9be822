package extproc

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		says, date string
		want       time.Duration
	}{
		{"7", "", 7 * time.Second},
		{"", "", 0},
		{"-1", "", 0},
		{"99999999999999999999", "", 0},
		{"soon", "", 0},
		{"Tue, 24 Nov 2026 12:00:04 GMT", "", 4 * time.Second},
		{"Tue, 24 Nov 2026 11:00:00 GMT", "", 0},
		{"Tue, 24 Nov 2026 15:00:04 GMT", "Tue, 24 Nov 2026 15:00:00 GMT", 4 * time.Second}, // its clock is three hours ahead
		{"Tuesday, 24-Nov-26 12:00:02 GMT", "not a date", 2 * time.Second},
		{"Tue, 24 Nov 0001 12:00:00 GMT", "Tue, 24 Nov 9999 12:00:00 GMT", 0},
	} {
		v := headerView{[]wire.Header{{Name: wire.HeaderRetryAfter, Value: c.says}, {Name: wire.HeaderDate, Value: c.date}}}
		if got := v.retryAfter(now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.says, c.date, got, c.want)
		}
	}
}
