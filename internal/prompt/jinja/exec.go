package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// signal is how a statement ended.
type signal uint8

const (
	goOn signal = iota
	doBreak
	doContinue
)

func (st *state) block(body []syntax.Stmt) signal {
	for _, s := range body {
		st.step()
		if sig := st.exec(s); sig != goOn {
			return sig
		}
	}
	return goOn
}

func (st *state) exec(s syntax.Stmt) signal {
	switch s := s.(type) {
	case *syntax.Data:
		st.out = append(st.out, s.Text...)
	case *syntax.Output:
		st.print(s.Of)
	case *syntax.If:
		return st.branch(s)
	case *syntax.For:
		return st.loop(s)
	case *syntax.Set:
		st.set(s)
	case *syntax.Macro:
		st.define(s)
	case *syntax.CallBlock:
		st.callBlock(s)
	case *syntax.Scope:
		return st.scoped(&scope{parent: st.scope}, s.Body)
	case *syntax.With:
		st.with(s)
	case *syntax.FilterBlock:
		text := value.String(st.capture(func() { st.scoped(&scope{parent: st.scope}, s.Body) }))
		for _, f := range s.Filters {
			text = st.filter(f, text)
		}
		st.out = text.Append(st.out)
	case *syntax.Jump:
		if s.Break {
			return doBreak
		}
		return doContinue
	default:
		value.Raise("statement %T", s)
	}
	return goOn
}

// print writes an expression's value; concatenations part by part.
func (st *state) print(e syntax.Expr) {
	switch x := e.(type) {
	case *syntax.Sum:
		var buf [16]value.Value
		vals := st.evalAll(buf[:0], x.Parts)
		if value.AllPlain(vals) {
			for i := range vals {
				st.out = append(st.out, vals[i].Str()...)
			}
			return
		}
		st.out = value.Sum(vals).Append(st.out)
	case *syntax.Concat:
		for _, part := range x.Parts {
			st.out = st.eval(part).Append(st.out)
		}
	case *syntax.Cond:
		switch {
		case st.eval(x.Test).IsTrue():
			st.print(x.Then)
		case x.Else != nil:
			st.print(x.Else)
		}
	default:
		st.out = st.eval(e).Append(st.out)
	}
}

func (st *state) branch(s *syntax.If) signal {
	for i, test := range s.Tests {
		if st.eval(test).IsTrue() {
			return st.block(s.Bodies[i])
		}
	}
	if len(s.Bodies) > len(s.Tests) {
		return st.block(s.Bodies[len(s.Tests)])
	}
	return goOn
}

// with runs a body with additional variables. Their values are evaluated in the outer scope.
func (st *state) with(s *syntax.With) {
	inner := &scope{parent: st.scope}
	vals := st.evalAll(make([]value.Value, 0, len(s.Vals)), s.Vals)
	for i, id := range s.Names {
		inner.set(id, vals[i])
	}
	st.scoped(inner, s.Body)
}

func (st *state) set(s *syntax.Set) {
	if s.Value == nil {
		inner := &scope{parent: st.scope}
		text := value.String(st.capture(func() { st.scoped(inner, s.Body) }))
		for _, f := range s.Filters {
			text = st.filter(f, text)
		}
		st.assign(s.Targets[0], text)
		return
	}
	v := st.eval(s.Value)
	if len(s.Targets) == 1 {
		st.assign(s.Targets[0], v)
		return
	}
	items := st.iterate(v)
	if len(items) != len(s.Targets) {
		value.Raise("%d values for %d names", len(items), len(s.Targets))
	}
	for i, t := range s.Targets {
		st.assign(t, items[i])
	}
}
