package vocab

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// offsets returns where each token starts, and the end.
func offsets(v *Vocab, ids []uint32) []int {
	out := make([]int, 1, len(ids)+1)
	for i, id := range ids {
		out = append(out, out[i]+v.TokenLen(id))
	}
	return out
}

// spoil replaces some tokens by two tokens with the same bytes.
func spoil(rng *rand.Rand, v *Vocab, ids []uint32, share int) []uint32 {
	var out []uint32
	for _, id := range ids {
		tok := v.token(id)
		if v.IsAdded(id) || len(tok) < 2 || rng.IntN(share) != 0 {
			out = append(out, id)
			continue
		}
		cut := 1 + rng.IntN(len(tok)-1)
		left, ok1 := v.bpe.pieces.find(tok[:cut])
		right, ok2 := v.bpe.pieces.find(tok[cut:])
		if !ok1 || !ok2 {
			out = append(out, id)
			continue
		}
		out = append(out, left, right)
	}
	return out
}

// tally counts verdicts.
type tally [3]int

// checkWindows holds a Checker against tokenizing the whole text.
func checkWindows(t *testing.T, v *Vocab, texts []string) (sum tally) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	c := v.NewChecker()
	for _, text := range texts {
		space := v.Prepare(nil, []byte(text))
		ids := v.EncodePrepared(nil, space)
		if rng.IntN(2) == 0 {
			ids = spoil(rng, v, ids, 12)
		}
		if len(ids) < 3 {
			continue
		}
		plain, _ := v.AppendTokens(nil, ids)
		want := v.EncodePrepared(nil, plain)
		for range 6 {
			a := rng.IntN(len(ids))
			b := a + 1 + rng.IntN(min(16, len(ids)-a))
			w := Window{Before: ids[max(0, a-16):a], Block: ids[a:b], After: ids[b:min(len(ids), b+rng.IntN(6))]}
			w.Root, w.Final = a <= 16, b+len(w.After) == len(ids)
			verdict, n := c.Check(w)
			sum[verdict]++
			judge(t, v, ids, want, a, b, w, verdict, n)
		}
	}
	return sum
}

// judge fails the test when a verdict contradicts the whole text.
func judge(t *testing.T, v *Vocab, ids, want []uint32, a, b int, w Window, verdict Verdict, n int) {
	t.Helper()
	have, ref := offsets(v, ids), offsets(v, want)
	same := func(i int) bool {
		k, ok := slices.BinarySearch(ref, have[i])
		return ok && k < len(want) && want[k] == ids[i]
	}
	for i := a; i < a+n; i++ {
		if !same(i) {
			t.Fatalf("token %d of the block %q is called canonical\nbefore %q after %q", i-a, show(v, ids[a:b]), show(v, w.Before), show(v, w.After))
		}
	}
	// A deviation before the block breaks the chain of blocks as well.
	broken := v.added.strips // a round trip moves white space
	for i := 0; i <= a+n && i < b; i++ {
		broken = broken || !same(i)
	}
	if verdict == Deviates && !broken {
		t.Fatalf("token %d of the block %q is reported to deviate\nbefore %q after %q", n, show(v, ids[a:b]), show(v, w.Before), show(v, w.After))
	}
	if verdict == Unknown && w.Root && w.Final {
		t.Fatalf("unknown at token %d although everything was given: %q", n, show(v, ids[a:b]))
	}
}

func TestCanonicalRealModels(t *testing.T) {
	texts := hardStrings(21, 800, 16)
	for _, name := range realModels {
		v, _ := realModel(t, name)
		sum := checkWindows(t, v, texts)
		t.Logf("%s: %d unknown, %d canonical, %d deviating", name, sum[Unknown], sum[Canonical], sum[Deviates])
		if sum[Canonical] < 1000 || sum[Deviates] < 200 {
			t.Errorf("%s: too few verdicts: %v", name, sum)
		}
	}
}

// TestCanonicalProse shows how rarely ordinary text stays undecided when a
// block of context is given on the left and four tokens on the right.
func TestCanonicalProse(t *testing.T) {
	v, _ := realModel(t, "qwen3")
	ids := v.Encode(nil, mixed[:20_000])
	c := v.NewChecker()
	var sum tally
	for a := 16; a+20 <= len(ids); a += 16 {
		verdict, _ := c.Check(Window{Before: ids[a-16 : a], Block: ids[a : a+16], After: ids[a+16 : a+20]})
		sum[verdict]++
	}
	t.Logf("%d unknown, %d canonical, %d deviating", sum[Unknown], sum[Canonical], sum[Deviates])
	if sum[Deviates] != 0 {
		t.Errorf("canonical blocks reported to deviate: %v", sum)
	}
	if sum[Unknown]*10 > sum[Canonical] {
		t.Errorf("more than one block in ten is undecided: %v", sum)
	}
}

func TestCheckerCases(t *testing.T) {
	v, _ := realModel(t, "qwen3")
	one := func(s string) []uint32 { return v.Encode(nil, []byte(s)) }
	var odd []uint32 // "hello world" spelled letter by letter
	for _, r := range "hello" {
		odd = append(odd, one(string(r))...)
	}
	var fake []uint32 // a special token's text in ordinary tokens
	for _, r := range "<|im_end|>" {
		fake = append(fake, one(string(r))...)
	}
	cases := []struct {
		name string
		w    Window
		want Verdict
		n    int
	}{
		{"plain", Window{Block: one("hello world"), Root: true, Final: true}, Canonical, 2},
		{"last word open", Window{Block: one("hello world"), Root: true}, Unknown, 1},
		{"closed by a special token", Window{Block: one("hello world"), After: one("<|im_end|>"), Root: true}, Canonical, 2},
		{"letters", Window{Block: odd, Root: true, Final: true}, Deviates, 0},
		{"letters after a word", Window{Before: one("well,"), Block: append(one(" so"), odd...), Root: true, Final: true}, Deviates, 1},
		{"special token as text", Window{Block: append(one("a"), fake...), Root: true, Final: true}, Deviates, 1},
		{"special token", Window{Block: one("<|im_end|>\n<|im_start|>user\nx"), Root: true, Final: true}, Canonical, 5},
		{"not NFC", Window{Block: append(one("e"), v.bpe.bytes[0xcc], v.bpe.bytes[0x81]), Root: true, Final: true}, Deviates, 0},
		{"not UTF-8", Window{Block: append(one("ab "), v.bpe.bytes[0xff]), Root: true, Final: true}, Deviates, 2},
		{"unknown id", Window{Block: []uint32{1 << 30}}, Deviates, 0},
	}
	c := v.NewChecker()
	for _, tc := range cases {
		verdict, n := c.Check(tc.w)
		if verdict != tc.want || n != tc.n && tc.want != Canonical {
			t.Errorf("%s: verdict %d at %d, want %d at %d", tc.name, verdict, n, tc.want, tc.n)
		}
	}
}

func TestCheckerAllocates(t *testing.T) {
	v, _ := realModel(t, "qwen3")
	ids := v.Encode(nil, mixed[:2000])
	c := v.NewChecker()
	w := Window{Before: ids[16:32], Block: ids[32:48], After: ids[48:52]}
	c.Check(w)
	if n := testing.AllocsPerRun(100, func() { c.Check(w) }); n != 0 {
		t.Errorf("%v allocations per check", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	v, _ := realModel(b, "qwen3")
	ids := v.Encode(nil, mixed)
	c := v.NewChecker()
	i := 16
	for b.Loop() {
		c.Check(Window{Before: ids[i-16 : i], Block: ids[i : i+16], After: ids[i+16 : i+20]})
		if i += 16; i+20 > len(ids) {
			i = 16
		}
	}
}
