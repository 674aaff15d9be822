package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSetupCodec(t *testing.T) {
	want := setup{secret: 7, models: map[string]uint64{"a": printLoading, "b": printNone, "": 1 << 63}}
	b := want.append(nil)
	got, err := readSetup(b)
	if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(setup{})) {
		t.Errorf("readSetup() = %+v, %v, want %+v", got, err, want)
	}
	for n := range b {
		if _, err := readSetup(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were accepted as a setup", n, len(b))
		}
	}
}

func TestSetupDiffers(t *testing.T) {
	f := func(a, b map[string]uint64, want ...string) {
		t.Helper()
		x, y := setup{models: a}, setup{models: b}
		if got := x.differ(&y); !cmp.Equal(got, want) {
			t.Errorf("%v and %v: %q, want %q", a, b, got, want)
		}
		if got := y.differ(&x); !cmp.Equal(got, want) {
			t.Errorf("%v and %v: %q, want %q", b, a, got, want)
		}
	}
	type m = map[string]uint64
	f(nil, nil)
	f(m{}, m{})
	f(m{"a": 5, "b": 6}, m{"b": 6, "a": 5})
	f(m{"a": printNone}, m{})
	f(m{"a": 5}, m{}, "a")
	f(m{"a": 5, "c": 8}, m{"a": 6, "b": 7}, "a", "b", "c")
	f(m{"a": printLoading}, m{"a": 6})
	f(m{"a": printLoading, "b": 1}, m{"a": 6, "b": 2}, "b")
}

// An endpoint without names uses the only model. If there are several, it uses none, independent of
// their order.
func TestSetupWithoutNames(t *testing.T) {
	for _, c := range []struct {
		models map[string]uint64
		want   uint64
	}{
		{nil, printNone},
		{map[string]uint64{"a": 7, "alias": 7}, 7},
		{map[string]uint64{"a": printLoading}, printLoading},
		{map[string]uint64{"a": 7, "b": 8}, printNone},
		{map[string]uint64{"a": 7, "b": printNone}, printNone},
	} {
		for range 100 {
			if got := (&setup{models: c.models}).of(nil); got != c.want {
				t.Fatalf("%v: of() = %d, want %d", c.models, got, c.want)
			}
		}
	}
}

// TestDepartedSetup: a departed replica's files are no reason to read an engine twice, nor a
// mismatch.
func TestDepartedSetup(t *testing.T) {
	x := NewSetup(SetupOptions{Secret: 5})
	other := setup{secret: 6}
	if err := x.Merge("b", 1, keySetup, other.append(nil)); err != nil {
		t.Fatal(err)
	}
	if id, what := x.Mismatch(); id != "b" {
		t.Errorf("Mismatch() = %q, %q with another secret, want b", id, what)
	}
	x.Drop("b")
	if id, what := x.Mismatch(); id != "" {
		t.Errorf("Mismatch() = %q, %q after b has departed, want none", id, what)
	}
}
