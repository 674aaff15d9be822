package kvtransfer

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestReport(t *testing.T) {
	for _, r := range []Report{
		{Known: true, Target: 0, Prefill: 12300 * time.Microsecond, Decode: time.Second},
		{Known: true, Target: -1, Failed: 2},
		{Known: true, Target: -1, Local: LocalTransfer},
	} {
		if got := ParseReport(r.Text()); got != r {
			t.Errorf("%s: %+v, want %+v", r.Text(), got, r)
		}
	}
	for _, s := range []string{"", "x", "-2", "0;failed=x", "0;prefill_us=-1", "0;decode_us=99999999999999", "1000"} {
		if got := ParseReport(s); got.Known {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

func FuzzReport(f *testing.F) {
	f.Add("0;failed=1;prefill_us=10;decode_us=20")
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, s string) {
		if r := ParseReport(s); r.Known && ParseReport(r.Text()) != r {
			t.Errorf("%q: %+v", s, r)
		}
	})
}

// TestComputers: who computed a prompt follows from the proxy's report, and a missing report does
// not mean the first target.
func TestComputers(t *testing.T) {
	for text, want := range map[string]string{"0;failed=0;prefill_us=1;decode_us=1": "first", "2;failed=1;prefill_us=1": "alternate", "-1;failed=2;prefill_us=0": "decode", "": "unreported", "x": "unreported", "-2;failed=0": "unreported"} {
		r := ParseReport(text)
		if got := Computers[r.By()]; got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
