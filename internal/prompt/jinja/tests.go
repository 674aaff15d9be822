package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// testFunc applies a test.
type testFunc func(in value.Value, a args) bool

var testTable = map[string]testFunc{
	"defined":   func(in value.Value, _ args) bool { return in.Kind() != value.KindUndefined },
	"undefined": func(in value.Value, _ args) bool { return in.Kind() == value.KindUndefined },
	"none":      func(in value.Value, _ args) bool { return in.Kind() == value.KindNone },
	"string":    func(in value.Value, _ args) bool { return in.Kind() == value.KindString },
	"mapping":   func(in value.Value, _ args) bool { return in.Kind() == value.KindDict },
	"sequence": func(in value.Value, _ args) bool {
		return in.Kind() == value.KindUndefined || in.Kind() == value.KindString || in.Kind() == value.KindList || in.Kind() == value.KindTuple || in.Kind() == value.KindDict
	},
	"iterable": func(in value.Value, _ args) bool {
		return in.Kind() == value.KindUndefined || in.Kind() == value.KindString || in.Kind() == value.KindList || in.Kind() == value.KindTuple || in.Kind() == value.KindDict || in.Kind() == value.KindLoop
	},
	"number":      func(in value.Value, _ args) bool { _, ok := in.Number(); return ok },
	"integer":     func(in value.Value, _ args) bool { return in.Kind() == value.KindInt || in.Kind() == value.KindBig },
	"float":       func(in value.Value, _ args) bool { return in.Kind() == value.KindFloat },
	"boolean":     func(in value.Value, _ args) bool { return in.Kind() == value.KindBool },
	"true":        func(in value.Value, _ args) bool { return in.Kind() == value.KindBool && in.IsTrue() },
	"false":       func(in value.Value, _ args) bool { return in.Kind() == value.KindBool && !in.IsTrue() },
	"callable":    func(in value.Value, _ args) bool { return in.Kind() == value.KindFunction },
	"in":          func(in value.Value, a args) bool { return value.Contains(a.get(0, "seq", value.Value{}), in) },
	"odd":         func(in value.Value, _ args) bool { return parity(in) == 1 },
	"even":        func(in value.Value, _ args) bool { return parity(in) == 0 },
	"divisibleby": testDivisible,
	"sameas":      testSameAs,
	"lower":       func(in value.Value, _ args) bool { return isCased(in.Text(), false) },
	"upper":       func(in value.Value, _ args) bool { return isCased(in.Text(), true) },
	"eq":          testCompare("=="), "equalto": testCompare("=="), "==": testCompare("=="),
	"ne": testCompare("!="), "!=": testCompare("!="),
	"lt": testCompare("<"), "lessthan": testCompare("<"), "<": testCompare("<"),
	"le": testCompare("<="), "<=": testCompare("<="),
	"gt": testCompare(">"), "greaterthan": testCompare(">"), ">": testCompare(">"),
	"ge": testCompare(">="), ">=": testCompare(">="),
}

func testCompare(op string) testFunc {
	return func(in value.Value, a args) bool { return value.Compare(op, in, a.get(0, "other", value.Value{})) }
}

// parity is the remainder of an int by two.
func parity(v value.Value) int64 {
	n, ok := v.Integral()
	if !ok {
		value.Raise("remainder of a %s", v.Kind())
	}
	return n & 1
}
