package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/internal/failure"
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// loop is the special variable of a for loop.
type loop struct {
	items []value.Value
	index int
}

func (st *state) loop(s *syntax.For) signal {
	items := value.Iterate(st.eval(s.Iter))
	sc := &scope{parent: st.scope, vars: make([]binding, 0, 8)}
	if s.Keep != nil {
		items = st.keep(s, sc, items)
	}
	if len(items) == 0 {
		return st.scoped(sc, s.Else)
	}
	info := &loop{items: items}
	for i := range items {
		st.step()
		info.index = i
		sc.vars = sc.vars[:0]
		bind(sc, s.Target, items[i])
		if st.t.loopID >= 0 {
			sc.set(st.t.loopID, value.Opaque(value.KindLoop, info))
		}
		if st.scoped(sc, s.Body) == doBreak {
			break
		}
		if captured(sc) {
			sc = &scope{parent: st.scope, vars: make([]binding, 0, 8)}
		}
	}
	return goOn
}

// captured tells whether a macro defined in the body holds on to its scope.
func captured(sc *scope) bool {
	for i := range sc.vars {
		if sc.vars[i].v.Kind() == value.KindFunction {
			return true
		}
	}
	return false
}

// keep returns the items for which the loop's condition holds.
func (st *state) keep(s *syntax.For, sc *scope, items []value.Value) []value.Value {
	var kept []value.Value
	old := st.scope
	st.scope = sc
	for _, it := range items {
		st.step()
		sc.vars = sc.vars[:0]
		bind(sc, s.Target, it)
		if st.eval(s.Keep).IsTrue() {
			kept = append(kept, it)
		}
	}
	sc.vars = sc.vars[:0]
	st.scope = old
	return kept
}

// bind sets the loop's names for one item.
func bind(sc *scope, target []int, v value.Value) {
	if len(target) == 1 {
		sc.set(target[0], v)
		return
	}
	parts := value.Iterate(v)
	if len(parts) != len(target) {
		failure.Raise("%d values for %d loop names", len(parts), len(target))
	}
	for i, id := range target {
		sc.set(id, parts[i])
	}
}

// attr returns an attribute of the loop variable.
func (l *loop) attr(name string) value.Value {
	n := len(l.items)
	switch name {
	case "index":
		return value.Int(int64(l.index + 1))
	case "index0":
		return value.Int(int64(l.index))
	case "revindex":
		return value.Int(int64(n - l.index))
	case "revindex0":
		return value.Int(int64(n - l.index - 1))
	case "first":
		return value.Bool(l.index == 0)
	case "last":
		return value.Bool(l.index == n-1)
	case "length":
		return value.Int(int64(n))
	case "depth":
		return value.Int(1) // it counts recursion, not nesting
	case "depth0":
		return value.Int(0)
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
	case "nextitem":
		if l.index+1 < n {
			return l.items[l.index+1]
		}
	}
	return value.Undefined(name)
}
