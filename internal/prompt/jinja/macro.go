package jinja

import (
	"slices"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// define binds a macro in the current scope.
func (st *state) define(m *syntax.Macro) {
	defined := st.scope
	st.scope.set(m.ID, funcValue(m.Name, func(st *state, a args) value.Value {
		return value.String(st.run(m, defined, a))
	}))
}

// run runs a macro in the scope in which it was defined.
func (st *state) run(m *syntax.Macro, defined *scope, a args) string {
	if len(a.pos) > len(m.Args) {
		value.Raise("macro %s takes %d arguments, not %d", m.Name, len(m.Args), len(a.pos))
	}
	if st.calls++; st.calls > maxCallDepth {
		value.RaiseAs(value.ErrBounds, "macros nested %d deep", st.calls)
	}
	sc := &scope{parent: defined, vars: make([]binding, 0, len(m.Args)+4)}
	for i, id := range m.Args {
		name := st.t.Names[id]
		sc.set(id, value.Undefined(name))
		if i < len(a.pos) {
			sc.set(id, a.pos[i])
		} else if v, ok := a.named(name); ok {
			sc.set(id, v)
		} else if m.Defaults[i] != nil {
			old := st.scope
			st.scope = sc
			v := st.eval(m.Defaults[i])
			st.scope = old
			sc.set(id, v)
		}
	}
	for i, n := range a.names {
		id, known := st.t.ID(n)
		if n == syntax.Caller && m.UsesCaller {
			sc.set(id, a.vals[i])
		} else if !known || !slices.Contains(m.Args, id) {
			value.Raise("macro %s takes no argument %s", m.Name, n)
		}
	}
	text := st.capture(func() { st.scoped(sc, m.Body) })
	st.calls--
	return text
}

// callBlock calls a macro with the block's body as an argument.
func (st *state) callBlock(s *syntax.CallBlock) {
	defined := st.scope
	caller := funcValue(syntax.Caller, func(st *state, a args) value.Value {
		return value.String(st.run(s.Body, defined, a))
	})
	fn := st.eval(s.Call.Fn)
	a := st.args(s.Call.Args)
	a.names = append(slices.Clone(a.names), syntax.Caller)
	a.vals = append(a.vals, caller)
	if fn.Kind() != value.KindFunction {
		value.Raise("line %d: a %s is called", s.Call.Line, fn.Kind())
	}
	st.out = fn.Ref().(*function).call(st, a).Append(st.out)
}
