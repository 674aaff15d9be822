package jinja

import (
	"math"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

func filterInt(_ *state, in value.Value, a args) value.Value {
	a.most("int", 2, "default", "base")
	def := a.get(0, "default", value.Int(0))
	base := int(a.intArg("int", 1, "base", 10))
	switch in.Kind() {
	case value.KindInt, value.KindBig:
		return in
	case value.KindBool:
		n, _ := in.Integral()
		return value.Int(n)
	case value.KindFloat:
		if f, _ := in.Number(); math.Abs(f) < 1<<62 {
			return value.Int(int64(f))
		}
		return def
	case value.KindString:
		s := strings.TrimFunc(in.Str(), value.IsSpace)
		if base == 16 || base == 8 || base == 2 {
			if n, err := strconv.ParseInt(s, 0, 64); err == nil {
				return value.Int(n)
			}
		}
		if n, err := strconv.ParseInt(s, base, 64); err == nil {
			return value.Int(n)
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && base == 10 && math.Abs(f) < 1<<62 {
			return value.Int(int64(f))
		}
	}
	return def
}

func filterFloat(_ *state, in value.Value, a args) value.Value {
	a.most("float", 1, "default")
	if f, ok := in.Number(); ok {
		return value.Float(f)
	}
	if in.Kind() == value.KindString {
		if f, err := strconv.ParseFloat(strings.TrimFunc(in.Str(), value.IsSpace), 64); err == nil {
			return value.Float(f)
		}
	}
	return a.get(0, "default", value.Float(0))
}

func filterAbs(_ *state, in value.Value, _ args) value.Value {
	switch in.Kind() {
	case value.KindFloat:
		f, _ := in.Number()
		return value.Float(math.Abs(f))
	case value.KindInt, value.KindBool:
		n, _ := in.Integral()
		return value.Int(max(n, -n))
	}
	value.Raise("abs of a %s", in.Kind())
	return value.Value{}
}

// percentFormat is "%" on a str, for %s, %d, %i, %f, %r and %% without flags
// but a precision.
func percentFormat(of, v value.Value) value.Value {
	format := of.Str()
	if of.IsMarkup() {
		v = escapedArgs(v)
	}
	list := []value.Value{v}
	if v.Kind() == value.KindTuple {
		list = v.Items()
	}
	var b []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b = append(b, format[i])
			continue
		}
		precision := 6
		if i++; i+1 < len(format) && format[i] == '.' && format[i+1] >= '0' && format[i+1] <= '9' {
			precision = int(format[i+1] - '0')
			i += 2
		}
		if i >= len(format) {
			value.Raise("incomplete format")
		}
		if format[i] == '%' {
			b = append(b, '%')
			continue
		}
		if len(list) == 0 {
			value.Raise("not enough arguments for format string")
		}
		if format[i] == 'r' && of.IsMarkup() {
			value.RaiseAs(ErrUnsupported, "format %%r of a Markup")
		}
		b = appendVerb(b, format[i], list[0], precision)
		value.CheckSize(len(b))
		list = list[1:]
	}
	if len(list) > 0 && v.Kind() != value.KindDict {
		value.Raise("not all arguments converted during string formatting")
	}
	return value.String(string(b)).As(of)
}

func appendVerb(b []byte, verb byte, v value.Value, precision int) []byte {
	switch verb {
	case 's':
		return v.Append(b)
	case 'r':
		return v.AppendRepr(b)
	case 'd', 'i', 'f':
		f, ok := v.Number()
		if !ok {
			value.Raise("format %%%c of a %s", verb, v.Kind())
		}
		if verb == 'f' {
			return strconv.AppendFloat(b, f, 'f', precision, 64)
		}
		if v.Kind() == value.KindFloat {
			return strconv.AppendInt(b, int64(f), 10)
		}
		n, _ := v.Integral()
		return strconv.AppendInt(b, n, 10)
	}
	value.RaiseAs(ErrUnsupported, "format %%%c", verb)
	return b
}
