package jinja

import "slices"

// callerName is the argument in which a call block's body reaches a macro.
const callerName = "caller"

func (s *macroStmt) exec(st *state) signal {
	defined := st.scope
	st.scope.set(s.id, funcValue(s.name, func(st *state, a args) Value {
		return StringValue(s.call(st, defined, a))
	}))
	return goOn
}

// call runs a macro in the scope in which it was defined.
func (s *macroStmt) call(st *state, defined *scope, a args) string {
	if len(a.pos) > len(s.args) {
		fail("macro %s takes %d arguments, not %d", s.name, len(s.args), len(a.pos))
	}
	if st.calls++; st.calls > maxCallDepth {
		failWith(ErrBounds, "macros nested %d deep", st.calls)
	}
	sc := &scope{parent: defined, vars: make([]binding, 0, len(s.args)+4)}
	for i, id := range s.args {
		sc.set(id, Value{s: st.t.names[id]})
		if i < len(a.pos) {
			sc.set(id, a.pos[i])
		} else if v, ok := a.named(st.t.names[id]); ok {
			sc.set(id, v)
		} else if s.defs[i] != nil {
			old := st.scope
			st.scope = sc
			v := s.defs[i].eval(st)
			st.scope = old
			sc.set(id, v)
		}
	}
	for i, n := range a.names {
		if n == callerName && s.usesCaller {
			sc.set(st.t.ids[n], a.vals[i])
		} else if id, ok := st.t.ids[n]; !ok || !slices.Contains(s.args, id) {
			fail("macro %s takes no argument %s", s.name, n)
		}
	}
	text := st.capture(func() { st.scoped(sc, s.body) })
	st.calls--
	return text
}

func (s *callStmt) exec(st *state) signal {
	defined := st.scope
	caller := funcValue(callerName, func(st *state, a args) Value {
		return StringValue(s.body.call(st, defined, a))
	})
	fn := s.call.fn.eval(st)
	a := s.call.args.eval(st)
	a.names = append(slices.Clone(a.names), callerName)
	a.vals = append(a.vals, caller)
	if fn.kind != funcKind {
		fail("line %d: a %s is called", s.call.line, fn.kind)
	}
	st.out = appendStr(st.out, fn.ref.(*function).call(st, a))
	return goOn
}
