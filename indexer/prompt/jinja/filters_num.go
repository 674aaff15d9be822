package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

func filterInt(_ *state, in Value, a args) Value {
	a.most("int", 2, "default", "base")
	def := a.get(0, "default", IntValue(0))
	base := int(a.intArg("int", 1, "base", 10))
	switch in.kind {
	case Int, Big:
		return in
	case Bool:
		return IntValue(in.n)
	case Float:
		if f := math.Trunc(in.float()); math.Abs(f) < 1<<62 {
			return IntValue(int64(f))
		}
		return def
	case String:
		s := strings.TrimFunc(in.s, isPyWhite)
		if base == 16 || base == 8 || base == 2 {
			if n, err := strconv.ParseInt(s, 0, 64); err == nil {
				return IntValue(n)
			}
		}
		if n, err := strconv.ParseInt(s, base, 64); err == nil {
			return IntValue(n)
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && base == 10 && math.Abs(f) < 1<<62 {
			return IntValue(int64(f))
		}
	}
	return def
}

func filterFloat(_ *state, in Value, a args) Value {
	a.most("float", 1, "default")
	if f, ok := in.number(); ok {
		return FloatValue(f)
	}
	if in.kind == String {
		if f, err := strconv.ParseFloat(strings.TrimFunc(in.s, isPyWhite), 64); err == nil {
			return FloatValue(f)
		}
	}
	return a.get(0, "default", FloatValue(0))
}

func filterAbs(_ *state, in Value, _ args) Value {
	switch in.kind {
	case Float:
		return FloatValue(math.Abs(in.float()))
	case Int, Bool:
		return IntValue(max(in.n, -in.n))
	}
	fail("abs of a %s", in.kind)
	return Value{}
}

func filterRound(_ *state, in Value, a args) Value {
	a.most("round", 2, "precision", "method")
	f, ok := in.number()
	if !ok {
		fail("round of a %s", in.kind)
	}
	precision := a.intArg("round", 0, "precision", 0)
	if precision < -300 || precision > 300 {
		fail("round to %d digits", precision)
	}
	switch m := str(a.get(1, "method", StringValue("common"))); m {
	case "common":
		if in.kind == Int || in.kind == Bool {
			if precision >= 0 {
				return IntValue(in.n)
			}
			failWith(ErrUnsupported, "round of an int to tens")
		}
		return FloatValue(roundHalfEven(f, int(precision)))
	case "ceil", "floor":
		p := math.Pow(10, float64(precision))
		if m == "ceil" {
			return FloatValue(math.Ceil(f*p) / p)
		}
		return FloatValue(math.Floor(f*p) / p)
	default:
		fail("round: method %q", m)
	}
	return Value{}
}

// roundHalfEven rounds the exact value of f to digits, ties to even, as
// Python does.
func roundHalfEven(f float64, digits int) float64 {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return f
	}
	if digits >= 0 {
		out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return out
	}
	p := new(big.Float).SetFloat64(math.Pow(10, float64(-digits)))
	q, _ := new(big.Float).Quo(new(big.Float).SetFloat64(f), p).Float64()
	out, _ := new(big.Float).Mul(new(big.Float).SetFloat64(math.RoundToEven(q)), p).Float64()
	return out
}

// percentFormat is "%" on a str, for %s, %d, %i, %f, %r and %% without flags
// but a precision.
func percentFormat(format string, v Value) string {
	list := []Value{v}
	if v.kind == Tuple {
		list = v.Items()
	}
	var b []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b = append(b, format[i])
			continue
		}
		precision := 6
		if i++; i+1 < len(format) && format[i] == '.' && isDigit(format[i+1]) {
			precision = int(format[i+1] - '0')
			i += 2
		}
		if i >= len(format) {
			fail("incomplete format")
		}
		if format[i] == '%' {
			b = append(b, '%')
			continue
		}
		if len(list) == 0 {
			fail("not enough arguments for format string")
		}
		b = appendVerb(b, format[i], list[0], precision)
		list = list[1:]
	}
	if len(list) > 0 && v.kind != DictKind {
		fail("not all arguments converted during string formatting")
	}
	return string(b)
}

func appendVerb(b []byte, verb byte, v Value, precision int) []byte {
	switch verb {
	case 's':
		return appendStr(b, v)
	case 'r':
		return appendRepr(b, v)
	case 'd', 'i', 'f':
		f, ok := v.number()
		if !ok {
			fail("format %%%c of a %s", verb, v.kind)
		}
		if verb == 'f' {
			return strconv.AppendFloat(b, f, 'f', precision, 64)
		}
		if v.kind == Float {
			return strconv.AppendInt(b, int64(f), 10)
		}
		return strconv.AppendInt(b, v.n, 10)
	}
	failWith(ErrUnsupported, "format %%%c", verb)
	return b
}
