package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// args are evaluated arguments.
type args struct {
	pos   []value.Value
	names []string
	vals  []value.Value
}

func (st *state) args(a syntax.Args) args {
	out := args{names: a.Names}
	if len(a.Pos) > 0 {
		out.pos = st.evalAll(make([]value.Value, 0, len(a.Pos)), a.Pos)
	}
	if len(a.Vals) > 0 {
		out.vals = st.evalAll(make([]value.Value, 0, len(a.Vals)), a.Vals)
	}
	return out
}

// named returns a keyword argument.
func (a args) named(name string) (value.Value, bool) {
	for i, n := range a.names {
		if n == name {
			return a.vals[i], true
		}
	}
	return value.Value{}, false
}

// get returns an argument by position or by name, or def if it is missing.
func (a args) get(i int, name string, def value.Value) value.Value {
	if i < len(a.pos) {
		return a.pos[i]
	}
	if v, ok := a.named(name); ok {
		return v
	}
	return def
}

// flag returns the truth of an argument, false if it is omitted.
func (a args) flag(i int, name string) bool { return a.get(i, name, value.Value{}).IsTrue() }

// most fails when there are more than n positional arguments, or a keyword
// that is not one of names.
func (a args) most(what string, n int, names ...string) {
	if len(a.pos) > n {
		value.Raise("%s takes %d arguments, not %d", what, n, len(a.pos))
	}
next:
	for _, have := range a.names {
		for _, name := range names {
			if have == name {
				continue next
			}
		}
		value.Raise("%s takes no argument %s", what, have)
	}
}

// intArg returns an argument that must be an int.
func (a args) intArg(what string, i int, name string, def int64) int64 {
	v := a.get(i, name, value.Int(def))
	n, ok := v.Integral()
	if !ok {
		value.Raise("%s: argument %s is a %s", what, name, v.Kind())
	}
	return n
}

// strArg returns an argument that must be a str.
func (a args) strArg(what string, i int) string {
	if i >= len(a.pos) || a.pos[i].Kind() != value.KindString {
		value.Raise("%s: argument %d is no str", what, i+1)
	}
	return a.pos[i].Str()
}

// function is something that templates can call.
type function struct {
	name string
	call func(st *state, a args) value.Value
}

func funcValue(name string, call func(st *state, a args) value.Value) value.Value {
	return value.Opaque(value.KindFunction, &function{name, call})
}

func (st *state) call(e *syntax.Call) value.Value {
	st.step()
	var fn value.Value
	if m, ok := e.Fn.(*syntax.Attr); ok {
		of := st.eval(m.Of)
		if method := methodOf(of, m.Name); method != nil {
			return st.made(of, method(st, of, st.args(e.Args)))
		}
		if of.Kind() == value.KindString && (leftMethods[m.Name] || of.IsMarkup() && leftOfMarkup[m.Name]) {
			raiseUnsupported("method", syntax.Use{Name: m.Name, Line: e.Line})
		}
		fn = getAttr(of, m.Name)
	} else {
		fn = st.eval(e.Fn)
	}
	switch fn.Kind() {
	case value.KindFunction:
		return st.made(value.Value{}, fn.Ref().(*function).call(st, st.args(e.Args)))
	case value.KindLoop:
		return value.String(fn.Ref().(*loop).recurse(st, st.args(e.Args)))
	case value.KindUndefined:
		value.Raise("line %d: %q is undefined and called", e.Line, fn.Name())
	}
	value.Raise("line %d: a %s is called", e.Line, fn.Kind())
	return value.Value{}
}

// method is a method of str, dict or list.
type method func(st *state, self value.Value, a args) value.Value

func methodOf(of value.Value, name string) method {
	switch of.Kind() {
	case value.KindString:
		m := strMethods[name]
		if m == nil {
			m = strMethodsMore[name]
		}
		if m != nil && of.IsMarkup() {
			return markupMethod(name, m)
		}
		return m
	case value.KindDict:
		return dictMethods[name]
	case value.KindList, value.KindTuple:
		return listMethods[name]
	case value.KindLoop:
		return loopMethods[name]
	}
	return nil
}

func boundMethod(of value.Value, name string, m method) value.Value {
	return funcValue(name, func(st *state, a args) value.Value { return m(st, of, a) })
}
