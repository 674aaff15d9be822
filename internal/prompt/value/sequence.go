package value

import (
	"unicode/utf8"
)

// Iterate returns the items of Python's iteration over v.
func Iterate(v Value) []Value {
	switch v.kind {
	case KindUndefined:
		return nil
	case KindList, KindTuple:
		return v.Items()
	case KindDict:
		return v.Dict().Keys()
	case KindString:
		out := make([]Value, 0, len(v.str()))
		for i := 0; i < len(v.str()); {
			_, n := utf8.DecodeRuneInString(v.str()[i:])
			out = append(out, String(v.str()[i:i+n]))
			i += n
		}
		return out
	}
	Raise("a %s is not iterable", v.kind)
	return nil
}

// At is of[i] for a str, a list or a tuple; an index out of range is undefined.
func At(of Value, i int64) Value {
	if of.kind == KindString {
		return charAt(of.str(), i).As(of)
	}
	items := of.Items()
	if k := wrap(i, len(items)); k >= 0 {
		return items[k]
	}
	return Undefined("item")
}

// wrap resolves a negative index; -1 is out of range.
func wrap(i int64, n int) int {
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return -1
	}
	return int(i)
}

// charAt is s[i].
func charAt(s string, i int64) Value {
	n := RuneCount(s)
	k := wrap(i, n)
	if k < 0 {
		return Undefined("item")
	}
	at := runeOffset(s, k, n)
	_, w := utf8.DecodeRuneInString(s[at:])
	return String(s[at : at+w])
}

// RuneCount is len(s) as Python counts.
func RuneCount(s string) int { return utf8.RuneCountInString(s) }

// runeOffset returns the byte offset of character k of s, which has n.
func runeOffset(s string, k, n int) int {
	if n == len(s) {
		return k // ASCII
	}
	at := 0
	for range k {
		_, w := utf8.DecodeRuneInString(s[at:])
		at += w
	}
	return at
}

// Bound is one of a slice's ends, which may be left out.
type Bound struct {
	N   int64
	Set bool
}

// Slice is of[start:stop:step].
func Slice(of Value, start, stop, step Bound) Value {
	by := int64(1)
	if step.Set {
		by = step.N
	}
	if by == 0 {
		Raise("slice step is zero")
	}
	if of.kind == KindString {
		n := RuneCount(of.str())
		lo, hi := sliceBounds(int64(n), start, stop, by)
		return String(sliceString(of.str(), n, lo, hi, by)).As(of)
	}
	switch of.kind {
	case KindList, KindTuple:
	case KindUndefined:
		Raise("%q is undefined, it has no slice", of.str())
	default:
		Raise("a %s has no slice", of.kind)
	}
	items := of.Items()
	lo, hi := sliceBounds(int64(len(items)), start, stop, by)
	var out []Value
	if by == 1 {
		out = items[lo:max(lo, hi)]
	} else {
		for i := lo; by > 0 && i < hi || by < 0 && i > hi; i += by {
			out = append(out, items[i])
		}
	}
	return sequence(of.kind, out)
}

// sliceBounds resolves a slice's ends as Python does.
func sliceBounds(n int64, start, stop Bound, step int64) (lo, hi int64) {
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i int64) int64 {
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	lo, hi = low, high
	if step < 0 {
		lo, hi = high, low
	}
	if start.Set {
		lo = clamp(start.N)
	}
	if stop.Set {
		hi = clamp(stop.N)
	}
	return lo, hi
}

func sliceString(s string, n int, lo, hi, step int64) string {
	if step == 1 {
		if hi <= lo {
			return ""
		}
		a := runeOffset(s, int(lo), n)
		if int(hi) == n {
			return s[a:]
		}
		return s[a:runeOffset(s, int(hi), n)]
	}
	runes := []rune(s)
	var out []rune
	for i := lo; step > 0 && i < hi || step < 0 && i > hi; i += step {
		out = append(out, runes[i])
	}
	return string(out)
}
