package fields

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	Count int
	text  string
}

type outer struct {
	Inner   inner
	Pointer *inner
	List    []inner
	Map     map[string]float64
	At      time.Time
	Addr    netip.AddrPort
	Small   uint8
	Flag    bool
	Call    func() error
	private time.Duration
}

// TestFillLeavesNothingUnset fills a record, and then clears some fields.
func TestFillLeavesNothingUnset(t *testing.T) {
	var x outer
	Fill(&x)
	if got := Unset(x); got != nil {
		t.Errorf("Unset() = %v after Fill(), want none", got)
	}
	if len(x.List) != 1 || Unset(x.List[0]) != nil || len(x.Map) != 1 || x.Inner.Count == x.Pointer.Count || x.Inner.text == x.Pointer.text || x.Call() != nil {
		t.Errorf("Fill() = %+v, want one element each, and different values", x)
	}
	x.Inner.text, x.Pointer, x.List, x.private, x.At = "", nil, nil, 0, time.Time{}
	if diff := cmp.Diff([]string{"Inner.text", "Pointer", "List", "At", "private"}, Unset(&x)); diff != "" {
		t.Errorf("Unset() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Pointer", "List", "At"}, Unset(x, "Inner", "private")); diff != "" {
		t.Errorf("Unset() with exceptions (-want +got):\n%s", diff)
	}
}

// TestFillExcept leaves named fields as they are.
func TestFillExcept(t *testing.T) {
	var x outer
	Fill(&x, "Inner.Count", "Map")
	if diff := cmp.Diff([]string{"Inner.Count", "Map"}, Unset(x)); diff != "" {
		t.Errorf("Unset() (-want +got):\n%s", diff)
	}
}
