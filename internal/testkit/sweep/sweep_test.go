package sweep

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestChangesOfAShortSeed checks that a short seed gets every value at every position, and every cut.
func TestChangesOfAShortSeed(t *testing.T) {
	seed := []byte("abc")
	got := map[string]bool{}
	n := 0
	for c := range Changes(seed, Default) {
		got[string(c)] = true
		n++
	}
	if n != len(seed)*(256+cuts) {
		t.Errorf("%d changes, want %d", n, len(seed)*(256+cuts))
	}
	for i := range seed {
		for v := range 256 {
			want := bytes.Clone(seed)
			want[i] = byte(v)
			if !got[string(want)] {
				t.Fatalf("Changes(%q) lacks %q", seed, want)
			}
		}
	}
	for _, want := range []string{"", "a", "ab", "bc", "ac", "aabc", "abbc", "abcc"} {
		if !got[want] {
			t.Errorf("Changes(%q) lacks %q", seed, want)
		}
	}
	if string(seed) != "abc" {
		t.Errorf("the seed became %q", seed)
	}
}

// TestChangesOfALongSeed checks that a long seed gets all values somewhere, and that its first, last
// and middle bytes are changed.
func TestChangesOfALongSeed(t *testing.T) {
	seed := bytes.Repeat([]byte{'x'}, 10_000)
	var values [256]bool
	var at []int
	n := 0
	for c := range Changes(seed, 1<<30) {
		n++
		if len(c) != len(seed) {
			continue
		}
		if i := bytes.IndexFunc(c, func(r rune) bool { return r != 'x' }); i >= 0 {
			values[c[i]], at = true, append(at, i)
		}
	}
	values['x'] = true
	if slices.Contains(values[:], false) || n > 60_000 {
		t.Errorf("%d changes, all values: %t", n, !slices.Contains(values[:], false))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	gap := 0
	for i := range at[1:] {
		gap = max(gap, at[i+1]-at[i])
	}
	if at[0] != 0 || at[len(at)-1] != len(seed)-1 || gap > 2*len(seed)/spread+1 {
		t.Errorf("positions from %d to %d, with gaps of up to %d", at[0], at[len(at)-1], gap)
	}
}

// TestLimitSpreadsChanges checks that a limit leaves changes at the whole seed.
func TestLimitSpreadsChanges(t *testing.T) {
	seed := make([]byte, 40)
	n, parts := 0, [4]int{}
	for c := range Changes(seed, 400) {
		n++
		if i := bytes.IndexFunc(c, func(r rune) bool { return r != 0 }); i >= 0 {
			parts[i/10]++
		}
	}
	if n != 400 || slices.Min(parts[:]) < 80 {
		t.Errorf("%d changes, by quarters of the seed %v", n, parts)
	}
}

// planted, when set, selects how FuzzPlanted fails. TestSweepFindsAByte sets it in another process.
const planted = "GRAPEVINE_SWEEP_PLANTED"

func FuzzPlanted(f *testing.F) {
	f.Add(3, []byte("abcdef"), "key: value")
	Fuzz(f, Default, func(t *testing.T, n int, b []byte, s string) {
		switch kind := os.Getenv(planted); {
		case kind == "panic" && bytes.HasPrefix(b, []byte{'a', 0xC7}):
			panic("planted")
		case kind == "fatal" && strings.HasSuffix(s, "\x93"):
			t.Fatal("planted")
		case kind == "error" && string(b) == "abc":
			t.Error("planted")
		}
	})
}

// TestSweepFindsAByte runs a target with a fault for one value of one byte, and expects its input in
// the output.
func TestSweepFindsAByte(t *testing.T) {
	for kind, want := range map[string]string{
		"panic": `[]uint8("a\xc7cdef")`,
		"fatal": `string("key: valu\x93")`,
		"error": `[]uint8("abc")`,
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^FuzzPlanted$")
		cmd.Env = append(os.Environ(), planted+"="+kind, Env+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("planted")) || !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %v, output without %s:\n%s", kind, err, want, out)
		}
	}
}
