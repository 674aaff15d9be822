package jinja

func (e *slice) eval(st *state) Value {
	of := e.of.eval(st)
	start, stop := st.sliceEnd(e.start), st.sliceEnd(e.stop)
	step := int64(1)
	if s := st.sliceEnd(e.step); s.set {
		step = s.n
	}
	if step == 0 {
		fail("slice step is zero")
	}
	n := 0
	switch of.kind {
	case String:
		n = runeCount(of.s)
	case List, Tuple:
		n = len(of.Items())
	case Undefined:
		fail("%q is undefined, it has no slice", of.s)
	default:
		fail("a %s has no slice", of.kind)
	}
	lo, hi := sliceBounds(int64(n), start, stop, step)
	if of.kind == String {
		return StringValue(sliceString(of.s, n, lo, hi, step))
	}
	items := of.Items()
	var out []Value
	if step == 1 {
		out = items[lo:max(lo, hi)]
	} else {
		for i := lo; step > 0 && i < hi || step < 0 && i > hi; i += step {
			out = append(out, items[i])
		}
	}
	if of.kind == Tuple {
		return tupleValue(out)
	}
	return ListValue(out)
}

// sliceEnd is one of a slice's ends, which may be left out.
type sliceEnd struct {
	n   int64
	set bool
}

func (st *state) sliceEnd(x expr) sliceEnd {
	if x == nil {
		return sliceEnd{}
	}
	v := x.eval(st)
	if v.kind == None {
		return sliceEnd{}
	}
	if v.kind != Int && v.kind != Bool {
		fail("slice index is a %s", v.kind)
	}
	return sliceEnd{v.n, true}
}

// sliceBounds resolves a slice's ends as Python does.
func sliceBounds(n int64, start, stop sliceEnd, step int64) (lo, hi int64) {
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
	if start.set {
		lo = clamp(start.n)
	}
	if stop.set {
		hi = clamp(stop.n)
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
