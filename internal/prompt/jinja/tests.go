package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// testFunc applies a test.
type testFunc func(st *state, in value.Value, a args) bool

var testTable = map[string]testFunc{
	"defined":   func(_ *state, in value.Value, _ args) bool { return in.Kind() != value.KindUndefined },
	"undefined": func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindUndefined },
	"none":      func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindNone },
	"string":    func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindString },
	"escaped":   func(_ *state, in value.Value, _ args) bool { return in.IsMarkup() },
	"mapping":   func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindDict },
	"sequence": func(_ *state, in value.Value, _ args) bool {
		return in.Kind() == value.KindUndefined || in.Kind() == value.KindString || in.Kind() == value.KindList || in.Kind() == value.KindTuple || in.Kind() == value.KindDict
	},
	"iterable": func(_ *state, in value.Value, _ args) bool {
		return in.Kind() == value.KindUndefined || in.Kind() == value.KindString || in.Kind() == value.KindList || in.Kind() == value.KindTuple || in.Kind() == value.KindDict || in.Kind() == value.KindLoop
	},
	"number": func(_ *state, in value.Value, _ args) bool { _, ok := in.Number(); return ok },
	"integer": func(_ *state, in value.Value, _ args) bool {
		return in.Kind() == value.KindInt || in.Kind() == value.KindBig
	},
	"float":    func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindFloat },
	"boolean":  func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindBool },
	"true":     func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindBool && in.IsTrue() },
	"false":    func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindBool && !in.IsTrue() },
	"callable": func(_ *state, in value.Value, _ args) bool { return in.Kind() == value.KindFunction },
	"in": func(st *state, in value.Value, a args) bool {
		return st.meter.Contains(a.get(0, "seq", value.Value{}), in)
	},
	"odd":         func(_ *state, in value.Value, _ args) bool { return parity(in) == 1 },
	"even":        func(_ *state, in value.Value, _ args) bool { return parity(in) == 0 },
	"divisibleby": testDivisible,
	"sameas":      testSameAs,
	"lower":       func(_ *state, in value.Value, _ args) bool { return isCased(in.Text(), false) },
	"upper":       func(_ *state, in value.Value, _ args) bool { return isCased(in.Text(), true) },
	"eq":          testCompare("=="), "equalto": testCompare("=="), "==": testCompare("=="),
	"ne": testCompare("!="), "!=": testCompare("!="),
	"lt": testCompare("<"), "lessthan": testCompare("<"), "<": testCompare("<"),
	"le": testCompare("<="), "<=": testCompare("<="),
	"gt": testCompare(">"), "greaterthan": testCompare(">"), ">": testCompare(">"),
	"ge": testCompare(">="), ">=": testCompare(">="),
}

func testCompare(op string) testFunc {
	return func(st *state, in value.Value, a args) bool {
		return st.meter.Compare(op, in, a.get(0, "other", value.Value{}))
	}
}

// parity is the remainder of an int by two.
func parity(v value.Value) int64 {
	n, ok := v.Integral()
	if !ok {
		value.Raise("remainder of a %s", v.Kind())
	}
	return n & 1
}
