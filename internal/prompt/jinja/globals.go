package jinja

import (
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

var globalTable = map[string]value.Value{
	"range":           funcValue("range", globalRange),
	"namespace":       funcValue("namespace", globalNamespace),
	"dict":            funcValue("dict", func(st *state, a args) value.Value { return value.FromDict(dictOf(a)) }),
	"raise_exception": funcValue("raise_exception", globalRaise),
	"strftime_now": funcValue("strftime_now", func(st *state, a args) value.Value {
		return value.String(strftime(st.opts.Now, a.strArg("strftime_now", 0)))
	}),
	"cycler": unsupported("cycler"),
	"joiner": unsupported("joiner"),
	"lipsum": unsupported("lipsum"),
}

func globalRaise(_ *state, a args) value.Value {
	value.RaiseAs(ErrRaised, "%.200s", a.get(0, "message", value.Value{}).Text())
	return value.Value{}
}

func dictOf(a args) *value.Dict {
	d := value.NewDict(len(a.names))
	if len(a.pos) == 1 && a.pos[0].Kind() == value.KindDict {
		copyInto(d, a.pos[0].Dict())
	} else if len(a.pos) > 0 {
		value.RaiseAs(ErrUnsupported, "dict() of that")
	}
	for i, n := range a.names {
		d.Set(n, a.vals[i])
	}
	return d
}

func globalNamespace(_ *state, a args) value.Value {
	return value.Opaque(value.KindNamespace, dictOf(a))
}

// unsupported returns a global function of Jinja that this package does not have: calling it ends
// the rendering.
func unsupported(name string) value.Value {
	return funcValue(name, func(*state, args) value.Value {
		raiseUnsupported("function", syntax.Use{Name: name})
		return value.Value{}
	})
}

// maxRange is the longest range that Jinja's sandbox allows.
const maxRange = 100_000

func globalRange(_ *state, a args) value.Value {
	a.most("range", 3)
	start, stop, step := int64(0), a.intArg("range", 0, "", 0), int64(1)
	if len(a.pos) > 1 {
		start, stop = stop, a.intArg("range", 1, "", 0)
		step = a.intArg("range", 2, "", 1)
	}
	if step == 0 {
		value.Raise("range() step is zero")
	}
	var out []value.Value
	if span := (stop - start) / step; span > maxRange || (stop > start) != (stop-start > 0) {
		value.RaiseAs(value.ErrBounds, "range too big")
	}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) >= maxRange {
			value.RaiseAs(value.ErrBounds, "range too big")
		}
		out = append(out, value.Int(i))
	}
	return value.List(out)
}

// strftimeLayouts maps directives to Go layouts.
var strftimeLayouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05",
	'D': "01/02/06", 'R': "15:04", 'e': "_2", 'f': "000000", 'z': "", 'Z': "", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats a local time without a zone, as returned by datetime.now().
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
			value.RaiseAs(ErrUnsupported, "time format %%%c", format[i])
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

// Strftime formats a time as Python's strftime does. It returns an error for an unsupported
// directive.
func Strftime(t time.Time, format string) (s string, err error) {
	defer value.Catch(&err)
	return strftime(t, format), nil
}
