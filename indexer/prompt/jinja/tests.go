package jinja

import (
	"strings"
	"unicode"
)

// testFunc applies a test.
type testFunc func(st *state, in Value, a args) bool

func tests() map[string]testFunc { return testTable }

var testTable = map[string]testFunc{
	"defined":   func(_ *state, in Value, _ args) bool { return in.kind != Undefined },
	"undefined": func(_ *state, in Value, _ args) bool { return in.kind == Undefined },
	"none":      func(_ *state, in Value, _ args) bool { return in.kind == None },
	"string":    func(_ *state, in Value, _ args) bool { return in.kind == String },
	"mapping":   func(_ *state, in Value, _ args) bool { return in.kind == DictKind },
	"sequence": func(_ *state, in Value, _ args) bool {
		return in.kind == Undefined || in.kind == String || in.kind == List || in.kind == Tuple || in.kind == DictKind
	},
	"iterable": func(_ *state, in Value, _ args) bool {
		return in.kind == Undefined || in.kind == String || in.kind == List || in.kind == Tuple || in.kind == DictKind || in.kind == loopKind
	},
	"number":   func(_ *state, in Value, _ args) bool { _, ok := in.number(); return ok },
	"integer":  func(_ *state, in Value, _ args) bool { return in.kind == Int || in.kind == Big },
	"float":    func(_ *state, in Value, _ args) bool { return in.kind == Float },
	"boolean":  func(_ *state, in Value, _ args) bool { return in.kind == Bool },
	"true":     func(_ *state, in Value, _ args) bool { return in.kind == Bool && in.n != 0 },
	"false":    func(_ *state, in Value, _ args) bool { return in.kind == Bool && in.n == 0 },
	"callable": func(_ *state, in Value, _ args) bool { return in.kind == funcKind },
	"sameas": func(_ *state, in Value, a args) bool {
		other := a.get(0, "other", Value{})
		return in.kind == other.kind && equal(in, other)
	},
	"in":   func(_ *state, in Value, a args) bool { return contains(a.get(0, "seq", Value{}), in) },
	"odd":  func(_ *state, in Value, _ args) bool { return intArithmeticMod(in, 2) == 1 },
	"even": func(_ *state, in Value, _ args) bool { return intArithmeticMod(in, 2) == 0 },
	"divisibleby": func(_ *state, in Value, a args) bool {
		return intArithmeticMod(in, a.intArg("divisibleby", 0, "num", 0)) == 0
	},
	"lower": func(_ *state, in Value, _ args) bool { return cased(str(in), unicode.IsUpper) },
	"upper": func(_ *state, in Value, _ args) bool { return cased(str(in), unicode.IsLower) },
	"eq":    testCompare("=="), "equalto": testCompare("=="), "==": testCompare("=="),
	"ne": testCompare("!="), "!=": testCompare("!="),
	"lt": testCompare("<"), "lessthan": testCompare("<"), "<": testCompare("<"),
	"le": testCompare("<="), "<=": testCompare("<="),
	"gt": testCompare(">"), "greaterthan": testCompare(">"), ">": testCompare(">"),
	"ge": testCompare(">="), ">=": testCompare(">="),
}

func testCompare(op string) testFunc {
	return func(_ *state, in Value, a args) bool { return compareValues(op, in, a.get(0, "other", Value{})) }
}

func intArithmeticMod(v Value, n int64) int64 {
	if v.kind != Int && v.kind != Bool {
		fail("remainder of a %s", v.kind)
	}
	r, _ := intArithmetic("%", v.n, n)
	return r.n
}

// cased is str.islower and str.isupper: some cased character, none of the
// other case.
func cased(s string, other func(rune) bool) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) }) >= 0 &&
		strings.IndexFunc(s, func(r rune) bool { return other(r) || unicode.IsTitle(r) }) < 0
}
