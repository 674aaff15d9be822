package jinja

import "unicode/utf8"

// loop is the special variable of a for loop.
type loop struct {
	items []Value
	index int
	last  *Value // of changed()
}

func (s *forStmt) exec(st *state) signal {
	items := iterate(s.iter.eval(st))
	sc := &scope{parent: st.scope, vars: make([]binding, 0, 8)}
	if s.filter != nil {
		items = s.keep(st, sc, items)
	}
	if len(items) == 0 {
		return st.scoped(sc, s.other)
	}
	info := &loop{items: items}
	loopID, used := st.t.ids["loop"]
	for i := range items {
		st.step()
		info.index = i
		sc.vars = sc.vars[:0]
		s.bind(sc, items[i])
		if used {
			sc.set(loopID, Value{kind: loopKind, ref: info})
		}
		if st.scoped(sc, s.body) == doBreak {
			break
		}
		if st.captured(sc) {
			sc = &scope{parent: st.scope, vars: make([]binding, 0, 8)}
		}
	}
	return goOn
}

// captured tells whether a macro defined in the body holds on to its scope.
func (st *state) captured(sc *scope) bool {
	for i := range sc.vars {
		if sc.vars[i].v.kind == funcKind {
			return true
		}
	}
	return false
}

// keep returns the items for which the loop's condition holds.
func (s *forStmt) keep(st *state, sc *scope, items []Value) []Value {
	var kept []Value
	old := st.scope
	st.scope = sc
	for _, it := range items {
		st.step()
		sc.vars = sc.vars[:0]
		s.bind(sc, it)
		if s.filter.eval(st).IsTrue() {
			kept = append(kept, it)
		}
	}
	sc.vars = sc.vars[:0]
	st.scope = old
	return kept
}

func (s *forStmt) bind(sc *scope, v Value) {
	if len(s.target) == 1 {
		sc.set(s.target[0], v)
		return
	}
	parts := iterate(v)
	if len(parts) != len(s.target) {
		fail("%d values for %d loop names", len(parts), len(s.target))
	}
	for i, id := range s.target {
		sc.set(id, parts[i])
	}
}

// iterate returns what Python's iteration over v gives.
func iterate(v Value) []Value {
	switch v.kind {
	case Undefined:
		return nil
	case List, Tuple:
		return v.Items()
	case DictKind:
		return v.Dict().keyValues()
	case String:
		out := make([]Value, 0, len(v.s))
		for i := 0; i < len(v.s); {
			_, n := utf8.DecodeRuneInString(v.s[i:])
			out = append(out, StringValue(v.s[i:i+n]))
			i += n
		}
		return out
	}
	fail("a %s is not iterable", v.kind)
	return nil
}

func (d *Dict) keyValues() []Value {
	out := make([]Value, len(d.entries))
	for i := range d.entries {
		out[i] = d.entries[i].keyValue()
	}
	return out
}

// attr returns an attribute of the loop variable.
func (l *loop) attr(name string) Value {
	n := len(l.items)
	switch name {
	case "index":
		return IntValue(int64(l.index + 1))
	case "index0":
		return IntValue(int64(l.index))
	case "revindex":
		return IntValue(int64(n - l.index))
	case "revindex0":
		return IntValue(int64(n - l.index - 1))
	case "first":
		return BoolValue(l.index == 0)
	case "last":
		return BoolValue(l.index == n-1)
	case "length":
		return IntValue(int64(n))
	case "depth":
		return IntValue(1) // it counts recursion, not nesting
	case "depth0":
		return IntValue(0)
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
	case "nextitem":
		if l.index+1 < n {
			return l.items[l.index+1]
		}
	case "cycle":
		return funcValue("cycle", func(_ *state, a args) Value {
			if len(a.pos) == 0 {
				fail("no items for cycling given")
			}
			return a.pos[l.index%len(a.pos)]
		})
	case "changed":
		return funcValue("changed", func(_ *state, a args) Value {
			now := tupleValue(a.pos)
			changed := l.last == nil || !equal(*l.last, now)
			l.last = &now
			return BoolValue(changed)
		})
	}
	return Value{s: name}
}
