package kvtransfer

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestFaults(t *testing.T) {
	var f Faults
	if f.Text() != "" || ParseFaults("") != f {
		t.Errorf("Text() without faults = %q", f.Text())
	}
	f.Add(0, Refused)
	f.Add(1, Timeout)
	f.Add(2, Broken) // no room
	if f.Text() != "0=refused,1=timeout" || ParseFaults(f.Text()) != f {
		t.Errorf("%q, %+v", f.Text(), ParseFaults(f.Text()))
	}
	for _, s := range []string{"x", "0", "0=", "0=none", "-1=refused", "64=refused", "0=refused,0=refused", "0=refused,1=refused,2=refused", "0=refused,", "0=Refused"} {
		if got := ParseFaults(s); got != (Faults{}) {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

func FuzzFaults(f *testing.F) {
	f.Add("0=refused,1=status_5xx")
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, s string) {
		r := ParseFaults(s)
		if ParseFaults(r.Text()) != r {
			t.Errorf("%q: %+v", s, r)
		}
	})
}
