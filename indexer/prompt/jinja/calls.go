package jinja

// args are evaluated arguments.
type args struct {
	pos   []Value
	names []string
	vals  []Value
}

func (a callArgs) eval(st *state) args {
	out := args{names: a.names}
	if len(a.pos) > 0 {
		out.pos = st.evalAll(make([]Value, 0, len(a.pos)), a.pos)
	}
	if len(a.vals) > 0 {
		out.vals = st.evalAll(make([]Value, 0, len(a.vals)), a.vals)
	}
	return out
}

// named returns a keyword argument.
func (a args) named(name string) (Value, bool) {
	for i, n := range a.names {
		if n == name {
			return a.vals[i], true
		}
	}
	return Value{}, false
}

// get returns an argument by place or by name, else def.
func (a args) get(i int, name string, def Value) Value {
	if i >= 0 && i < len(a.pos) {
		return a.pos[i]
	}
	if v, ok := a.named(name); ok {
		return v
	}
	return def
}

// most fails when there are more than n positional arguments, or a keyword
// that is not one of names.
func (a args) most(what string, n int, names ...string) {
	if len(a.pos) > n {
		fail("%s takes %d arguments, not %d", what, n, len(a.pos))
	}
next:
	for _, have := range a.names {
		for _, name := range names {
			if have == name {
				continue next
			}
		}
		fail("%s takes no argument %s", what, have)
	}
}

// intArg returns an argument that must be an int.
func (a args) intArg(what string, i int, name string, def int64) int64 {
	v := a.get(i, name, IntValue(def))
	if v.kind != Int && v.kind != Bool {
		fail("%s: argument %s is a %s", what, name, v.kind)
	}
	return v.n
}

// strArg returns an argument that must be a str.
func (a args) strArg(what string, i int) string {
	if i >= len(a.pos) || a.pos[i].kind != String {
		fail("%s: argument %d is no str", what, i+1)
	}
	return a.pos[i].s
}

// function is something that templates can call.
type function struct {
	name string
	call func(st *state, a args) Value
}

func funcValue(name string, call func(st *state, a args) Value) Value {
	return Value{kind: funcKind, ref: &function{name, call}}
}

func (e *call) eval(st *state) Value {
	st.step()
	if m, ok := e.fn.(*attr); ok {
		of := m.of.eval(st)
		if method := methodOf(of, m.name); method != nil {
			return method(st, of, e.args.eval(st))
		}
		return e.apply(st, getAttr(of, m.name))
	}
	return e.apply(st, e.fn.eval(st))
}

func (e *call) apply(st *state, fn Value) Value {
	if fn.kind != funcKind {
		if fn.kind == Undefined {
			fail("line %d: %q is undefined and called", e.line, fn.s)
		}
		fail("line %d: a %s is called", e.line, fn.kind)
	}
	return fn.ref.(*function).call(st, e.args.eval(st))
}

// method is a method of str, dict or list.
type method func(st *state, self Value, a args) Value

func methodOf(of Value, name string) method {
	switch of.kind {
	case String:
		return strMethods[name]
	case DictKind:
		return dictMethods[name]
	case List, Tuple:
		return listMethods[name]
	}
	return nil
}

func boundMethod(of Value, name string) Value {
	m := methodOf(of, name)
	return funcValue(name, func(st *state, a args) Value { return m(st, of, a) })
}
