package health

import (
	"math/rand/v2"
	"testing"
)

// TestLengths: an answer is short only if it is much shorter than those of other endpoints to
// similar requests.
func TestLengths(t *testing.T) {
	heads := uint64(100)
	unique := func() uint64 { heads++; return heads }
	for _, c := range []struct {
		name    string
		engines int
		tokens  func(engine, n int) int
		class   func(engine, n int) uint64
		head    func(n int) uint64
		want    func(engine int) bool // whether most answers of an engine are short
	}{
		{"one of two engines", 2, func(e, _ int) int { return 200 - 180*e }, nil, nil, func(e int) bool { return e == 1 }},
		{"one of twelve engines", 12, func(e, _ int) int {
			if e == 11 {
				return 20
			}
			return 200
		}, nil, nil, func(e int) bool { return e == 11 }},
		{"all alike", 3, func(_, n int) int { return 20 + n%30 }, nil, nil, nil},
		{"all become short", 3, func(_, n int) int {
			if n > 100 {
				return 20
			}
			return 200
		}, nil, nil, nil},
		{"a single engine", 1, func(_, n int) int { return 1 + n%500 }, nil, nil, nil},
		{"classification at one engine, by tenant", 2, func(e, _ int) int { return 200 - 199*e }, func(e, _ int) uint64 { return uint64(e) + 1 }, nil, nil},
		{"classification at one engine, by its prompts", 2, func(e, _ int) int { return 200 - 199*e }, nil, func(n int) uint64 {
			if n%2 == 1 { // engine 1
				return 7
			}
			return unique()
		}, nil},
		{"one application at both", 2, func(e, _ int) int { return 200 - 180*e }, nil, func(int) uint64 { return 7 }, func(e int) bool { return e == 1 }},
	} {
		var l Lengths
		short := make([]int, c.engines)
		const each = 200
		for n := range each * c.engines {
			e, class, head := n%c.engines, uint64(1), unique()
			if c.class != nil {
				class = c.class(e, n/c.engines)
			}
			if c.head != nil {
				head = c.head(n)
			}
			if l.Short(class, head, e, c.tokens(e, n/c.engines)) {
				short[e]++
			}
		}
		for e, n := range short {
			want := c.want != nil && c.want(e)
			if many := n > each*9/10; many != want || !want && n > each/10 {
				t.Errorf("%s: %d of %d answers of engine %d are short", c.name, n, each, e)
			}
		}
	}
}

// TestLengthsVary: answers whose lengths vary by more than a factor of ten are seldom short.
func TestLengthsVary(t *testing.T) {
	var l Lengths
	rng := rand.New(rand.NewPCG(1, 2))
	short := 0
	for n := range 10000 {
		tokens := 1 + int(100*rng.ExpFloat64())
		if l.Short(1, uint64(n)+1, n%4, tokens) {
			short++
		}
	}
	if short > 700 {
		t.Errorf("%d of 10000 answers are short", short)
	}
}

// TestLengthsDoNotAllocate: records are fixed.
func TestLengthsDoNotAllocate(t *testing.T) {
	var l Lengths
	n := 0
	if a := testing.AllocsPerRun(1000, func() { n++; l.Short(uint64(n), uint64(n), n%20, n) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

// TestRepeats: texts of a few bytes that repeat.
func TestRepeats(t *testing.T) {
	for text, want := range map[string]bool{
		"!!!!!!!!!!!!!!!!": true, "nnnnnnnnnnnnnnnn": true, "abcabcabcabcabca": true, "的的的的的的的的": true,
		" 4 5 6 7 8 9 10": false, "Hello, how are you?": false, "": false, "a": false, "!!!!!!!! and then": false,
	} {
		if got := Repeats([]byte(text)); got != want {
			t.Errorf("Repeats(%q) = %v", text, got)
		}
	}
}
