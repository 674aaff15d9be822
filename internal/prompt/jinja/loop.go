package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// loop is the special variable of a for loop.
type loop struct {
	site  *syntax.For
	outer *scope // in which the loop runs
	items []value.Value
	index int
	depth int           // of recursion
	last  []value.Value // arguments of the last call of changed()
}

func (st *state) loop(s *syntax.For) signal {
	return st.iterateLoop(s, st.iterate(st.eval(s.Iter)), 0)
}

// iterateLoop runs a loop over items; depth counts recursion.
func (st *state) iterateLoop(s *syntax.For, items []value.Value, depth int) signal {
	sc := &scope{parent: st.scope, vars: make([]binding, 0, 8)}
	if s.Keep != nil {
		items = st.keep(s, sc, items)
	}
	if len(items) == 0 {
		return st.scoped(sc, s.Else)
	}
	info := &loop{site: s, outer: st.scope, items: items, depth: depth}
	loopVar := value.Opaque(value.KindLoop, info)
	for i := range items {
		st.step()
		info.index = i
		sc.vars = sc.vars[:0]
		bind(sc, s.Target, items[i])
		if st.t.loopID >= 0 {
			sc.set(st.t.loopID, loopVar)
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

// captured reports whether a macro defined in the body retains the scope.
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
	parts := v.Items()
	if v.Kind() != value.KindList && v.Kind() != value.KindTuple {
		parts = value.Iterate(v)
	}
	if len(parts) != len(target) {
		value.Raise("%d values for %d loop names", len(parts), len(target))
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
		return value.Int(int64(l.depth + 1)) // it counts recursion, not nesting
	case "depth0":
		return value.Int(int64(l.depth))
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

// recurse implements loop(items) of a recursive loop. It returns the output of the loop for items.
func (l *loop) recurse(st *state, a args) string {
	if !l.site.Recursive {
		value.Raise("loop is called, but the loop is not recursive")
	}
	a.most("loop", 1)
	if st.calls++; st.calls > maxCallDepth {
		value.RaiseAs(value.ErrBounds, "loops nested %d deep", st.calls)
	}
	items := st.iterate(a.get(0, "", value.Value{}))
	old := st.scope
	st.scope = l.outer
	text := st.capture(func() { st.iterateLoop(l.site, items, l.depth+1) })
	st.scope = old
	st.calls--
	return text
}

var loopMethods = map[string]method{
	"cycle": func(_ *state, v value.Value, a args) value.Value {
		if len(a.pos) == 0 {
			value.Raise("no items for cycling given")
		}
		return a.pos[v.Ref().(*loop).index%len(a.pos)]
	},
	"changed": func(st *state, v value.Value, a args) value.Value {
		l := v.Ref().(*loop)
		same := l.last != nil && st.meter.Equal(value.Tuple(l.last), value.Tuple(a.pos))
		l.last = append([]value.Value{}, a.pos...)
		return value.Bool(!same)
	},
}
