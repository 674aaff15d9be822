package jinja

import (
	"math"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

func filterSum(st *state, in value.Value, a args) value.Value {
	a.most("sum", 2, "attribute", "start")
	by := a.get(0, "attribute", value.None())
	total := a.get(1, "start", value.Int(0))
	for _, v := range st.iterate(in) {
		if by.Kind() != value.KindNone {
			v = byPath(v, by)
		}
		total = st.made(value.Value{}, value.Add(total, v))
	}
	return total
}

// filterExtreme is min (sign -1) and max (sign 1).
func filterExtreme(sign int) filterFunc {
	return func(st *state, in value.Value, a args) value.Value {
		a.most("min and max", 2, "case_sensitive", "attribute")
		sensitive := a.flag(0, "case_sensitive")
		by := a.get(1, "attribute", value.None())
		items := st.iterate(in)
		if len(items) == 0 {
			return value.Undefined("no aggregated item, sequence was empty")
		}
		best, most := items[0], value.Value{}
		for i, v := range items {
			if k := st.sortKey(v, by, sensitive); i == 0 || st.meter.Order(k, most)*sign > 0 {
				best, most = v, k
			}
		}
		return best
	}
}

// filterRound rounds as Python does: halves to the even neighbour.
func filterRound(_ *state, in value.Value, a args) value.Value {
	a.most("round", 2, "precision", "method")
	precision := a.intArg("round", 0, "precision", 0)
	method := a.get(1, "method", value.String("common")).Text()
	f, ok := in.Number()
	if !ok {
		value.Raise("round of a %s", in.Kind())
	}
	if precision < 0 || precision > 15 {
		value.RaiseAs(ErrUnsupported, "round to %d digits", precision)
	}
	scale := math.Pow(10, float64(precision))
	switch method {
	case "common":
		if in.Kind() != value.KindFloat {
			return in
		}
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
	case "ceil":
		f = math.Ceil(f*scale) / scale
	case "floor":
		f = math.Floor(f*scale) / scale
	default:
		value.Raise("round: method %.20q", method)
	}
	return value.Float(f)
}

// filterAttr is attr: attributes only, never items.
func filterAttr(_ *state, in value.Value, a args) value.Value {
	a.most("attr", 1, "name")
	name := a.get(0, "name", value.Value{}).Text()
	if in.Kind() == value.KindDict && methodOf(in, name) == nil {
		return value.Undefined(name)
	}
	return getAttr(in, name)
}

// testSameAs implements Python's "is" for values whose identity does not depend on the
// interpreter's caching.
func testSameAs(st *state, in value.Value, a args) bool {
	other := a.get(0, "other", value.Value{})
	if in.Kind() != other.Kind() {
		return false
	}
	switch in.Kind() {
	case value.KindNone, value.KindBool:
		return st.meter.Equal(in, other)
	case value.KindString, value.KindList, value.KindTuple, value.KindDict:
		if in.PartOf(other) && other.PartOf(in) && in.Weight() == other.Weight() && in.Weight() > 0 {
			return true
		}
	}
	value.RaiseAs(ErrUnsupported, "identity of a %s", in.Kind())
	return false
}

func testDivisible(_ *state, in value.Value, a args) bool {
	rest := value.Binary("%", in, a.get(0, "num", value.Value{}))
	return !rest.IsTrue()
}
