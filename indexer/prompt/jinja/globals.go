package jinja

import (
	"strings"
	"time"
)

var dictMethods = map[string]method{
	"items": func(_ *state, v Value, _ args) Value { return dictItems(v.Dict()) },
	"keys":  func(_ *state, v Value, _ args) Value { return ListValue(v.Dict().keyValues()) },
	"values": func(_ *state, v Value, _ args) Value {
		d := v.Dict()
		out := make([]Value, len(d.entries))
		for i := range d.entries {
			out[i] = d.entries[i].val
		}
		return ListValue(out)
	},
	"get": func(_ *state, v Value, a args) Value {
		a.most("get", 2)
		if got, ok := v.Dict().getValue(a.get(0, "", Value{})); ok {
			return got
		}
		return a.get(1, "", NoneValue())
	},
	"copy": func(_ *state, v Value, _ args) Value {
		d := NewDict(v.Dict().Len())
		for _, e := range v.Dict().entries {
			d.setValue(e.keyValue(), e.val)
		}
		return DictValue(d)
	},
	// The sandbox of engines refuses what changes a dict.
	"pop": unsafeMethod("pop"), "update": unsafeMethod("update"), "clear": unsafeMethod("clear"),
	"setdefault": unsafeMethod("setdefault"), "popitem": unsafeMethod("popitem"), "fromkeys": unsafeMethod("fromkeys"),
}

var listMethods = map[string]method{
	"index": func(_ *state, v Value, a args) Value {
		for i, it := range v.Items() {
			if equal(it, a.get(0, "", Value{})) {
				return IntValue(int64(i))
			}
		}
		fail("value is not in list")
		return Value{}
	},
	"count": func(_ *state, v Value, a args) Value {
		n := int64(0)
		for _, it := range v.Items() {
			if equal(it, a.get(0, "", Value{})) {
				n++
			}
		}
		return IntValue(n)
	},
	"append": unsafeMethod("append"), "extend": unsafeMethod("extend"), "insert": unsafeMethod("insert"), "pop": unsafeMethod("pop"),
	"remove": unsafeMethod("remove"), "reverse": unsafeMethod("reverse"), "sort": unsafeMethod("sort"), "clear": unsafeMethod("clear"),
	"copy": func(_ *state, v Value, _ args) Value { return ListValue(v.Items()) },
}

func unsafeMethod(name string) method {
	return func(*state, Value, args) Value {
		fail("access to attribute %q is unsafe", name)
		return Value{}
	}
}

func dictItems(d *Dict) Value {
	out := make([]Value, len(d.entries))
	for i := range d.entries {
		out[i] = tupleValue([]Value{d.entries[i].keyValue(), d.entries[i].val})
	}
	return ListValue(out)
}

func globals() map[string]Value { return globalTable }

var globalTable = map[string]Value{
	"range":           funcValue("range", globalRange),
	"namespace":       funcValue("namespace", globalNamespace),
	"dict":            funcValue("dict", func(st *state, a args) Value { return DictValue(dictOf(a)) }),
	"raise_exception": funcValue("raise_exception", globalRaise),
	"strftime_now": funcValue("strftime_now", func(st *state, a args) Value {
		return StringValue(strftime(st.opts.Now, a.strArg("strftime_now", 0)))
	}),
	"joiner": funcValue("joiner", func(_ *state, a args) Value {
		sep, used := a.get(0, "sep", StringValue(", ")), false
		return funcValue("joiner", func(*state, args) Value {
			if used {
				return sep
			}
			used = true
			return StringValue("")
		})
	}),
}

func globalRaise(_ *state, a args) Value {
	failWith(ErrRaised, "%.200s", str(a.get(0, "message", Value{})))
	return Value{}
}

func dictOf(a args) *Dict {
	d := NewDict(len(a.names))
	if len(a.pos) == 1 && a.pos[0].kind == DictKind {
		for _, e := range a.pos[0].Dict().entries {
			d.setValue(e.keyValue(), e.val)
		}
	} else if len(a.pos) > 0 {
		failWith(ErrUnsupported, "dict() of that")
	}
	for i, n := range a.names {
		d.Set(n, a.vals[i])
	}
	return d
}

func globalNamespace(_ *state, a args) Value { return Value{kind: namespaceKind, ref: dictOf(a)} }

// maxRange is the longest range that Jinja's sandbox allows.
const maxRange = 100_000

func globalRange(_ *state, a args) Value {
	a.most("range", 3)
	start, stop, step := int64(0), a.intArg("range", 0, "", 0), int64(1)
	if len(a.pos) > 1 {
		start, stop = stop, a.intArg("range", 1, "", 0)
		step = a.intArg("range", 2, "", 1)
	}
	if step == 0 {
		fail("range() step is zero")
	}
	var out []Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) >= maxRange {
			failWith(ErrBounds, "range too big")
		}
		out = append(out, IntValue(i))
	}
	return ListValue(out)
}

// strftimeLayouts maps directives to Go layouts.
var strftimeLayouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05",
	'D': "01/02/06", 'R': "15:04", 'e': "_2", 'f': "000000", 'z': "", 'Z': "", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats a local time that knows no zone, as datetime.now() gives.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := true
		if format[i] == '-' && i+1 < len(format) {
			pad = false
			i++
		}
		switch layout, ok := strftimeLayouts[format[i]]; {
		case format[i] == '%':
			b.WriteByte('%')
		case !ok:
			failWith(ErrUnsupported, "time format %%%c", format[i])
		case format[i] == 'f':
			b.WriteString(strings.TrimPrefix(t.Format(".000000"), "."))
		case !pad:
			s := strings.TrimLeft(t.Format(layout), "0 ")
			if s == "" {
				s = "0"
			}
			b.WriteString(s)
		default:
			b.WriteString(t.Format(layout))
		}
	}
	return b.String()
}

// Strftime formats a time as Python's strftime does. It returns an error for a
// directive that it does not know.
func Strftime(t time.Time, format string) (s string, err error) {
	defer catch(&err)
	return strftime(t, format), nil
}
