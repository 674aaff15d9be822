package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// eval returns the value of an expression.
func (st *state) eval(e syntax.Expr) value.Value {
	switch e := e.(type) {
	case *syntax.Constant:
		return e.Value
	case *syntax.Name:
		return st.name(e)
	case *syntax.Attr:
		return getAttr(st.eval(e.Of), e.Name)
	case *syntax.Item:
		return getItem(st.eval(e.Of), st.eval(e.Key))
	case *syntax.Compare:
		return value.Bool(st.compare(e))
	case *syntax.Sum:
		var buf [16]value.Value
		return st.made(value.Value{}, value.Sum(st.evalAll(buf[:0], e.Parts)))
	case *syntax.Left:
		raiseUnsupported(e.What, syntax.Use{Line: e.Line})
	case *syntax.Call:
		return st.call(e)
	case *syntax.Filter:
		return st.filter(e, st.eval(e.Of))
	case *syntax.Test:
		of, a := st.eval(e.Of), st.args(e.Args)
		st.work(1 + of.Weight()/workBytes)
		return value.Bool(st.t.tests[e.ID](st, of, a) != e.Negate)
	case *syntax.Not:
		return value.Bool(!st.eval(e.Of).IsTrue())
	case *syntax.And:
		if v := st.eval(e.A); !v.IsTrue() {
			return v
		}
		return st.eval(e.B)
	case *syntax.Or:
		if v := st.eval(e.A); v.IsTrue() {
			return v
		}
		return st.eval(e.B)
	case *syntax.Cond:
		return st.cond(e)
	case *syntax.Slice:
		of := st.eval(e.Of)
		return st.made(of, value.Slice(of, st.sliceEnd(e.Start), st.sliceEnd(e.Stop), st.sliceEnd(e.Step)))
	case *syntax.Concat:
		return st.concat(e)
	case *syntax.List:
		items := st.evalAll(make([]value.Value, 0, len(e.Items)), e.Items)
		if e.Tuple {
			return value.Tuple(items)
		}
		return value.List(items)
	case *syntax.Dict:
		return st.dict(e)
	case *syntax.Binary:
		a, b := st.eval(e.A), st.eval(e.B)
		if e.Op == "%" && a.Kind() == value.KindString {
			return st.made(a, percentFormat(a, b))
		}
		return st.made(value.Value{}, value.Binary(e.Op, a, b))
	case *syntax.Sign:
		return value.Sign(st.eval(e.Of), e.Minus)
	}
	value.Raise("expression %T", e)
	return value.Value{}
}

func (st *state) filter(e *syntax.Filter, in value.Value) value.Value {
	return st.made(in, st.t.filters[e.ID](st, in, st.args(e.Args)))
}

// evalAll appends the values of several expressions.
func (st *state) evalAll(dst []value.Value, list []syntax.Expr) []value.Value {
	for _, e := range list {
		dst = append(dst, st.eval(e))
	}
	return dst
}

func (st *state) name(e *syntax.Name) value.Value {
	if v, ok := st.scope.get(e.ID); ok {
		return v
	}
	if f, ok := globalTable[e.Text]; ok {
		return f
	}
	return value.Undefined(e.Text)
}

func (st *state) compare(e *syntax.Compare) bool {
	left := st.eval(e.First)
	for i, op := range e.Ops {
		right := st.eval(e.Rest[i])
		st.step()
		if !st.meter.Compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (st *state) cond(e *syntax.Cond) value.Value {
	if st.eval(e.Test).IsTrue() {
		return st.eval(e.Then)
	}
	if e.Else == nil {
		return value.Undefined("the inline if-expression")
	}
	return st.eval(e.Else)
}

func (st *state) concat(e *syntax.Concat) value.Value {
	var b []byte
	for _, p := range e.Parts {
		b = st.eval(p).Append(b)
		value.CheckSize(len(b))
	}
	return st.made(value.Value{}, value.String(string(b)))
}

func (st *state) dict(e *syntax.Dict) value.Value {
	d := value.NewDict(len(e.Keys))
	for i := range e.Keys {
		d.Store(st.eval(e.Keys[i]), st.eval(e.Vals[i]))
	}
	return value.FromDict(d)
}

func (st *state) sliceEnd(e syntax.Expr) value.Bound {
	if e == nil {
		return value.Bound{}
	}
	v := st.eval(e)
	if v.Kind() == value.KindNone {
		return value.Bound{}
	}
	n, ok := v.Integral()
	if !ok {
		value.Raise("slice index is a %s", v.Kind())
	}
	return value.Bound{N: n, Set: true}
}

// getAttr is Jinja's obj.name: an attribute first, then an item.
func getAttr(of value.Value, name string) value.Value {
	if method := methodOf(of, name); method != nil {
		return boundMethod(of, name, method)
	}
	switch of.Kind() {
	case value.KindUndefined:
		value.Raise("%q is undefined, it has no attribute %s", of.Name(), name)
	case value.KindDict:
		if v, ok := of.Dict().Get(name); ok {
			return v
		}
	case value.KindNamespace:
		if v, ok := of.Ref().(*value.Dict).Get(name); ok {
			return v
		}
	case value.KindLoop:
		return of.Ref().(*loop).attr(name)
	}
	return value.Undefined(name)
}

// getItem is Jinja's obj[key]: an item first, then, for a str, an attribute.
func getItem(of, key value.Value) value.Value {
	switch of.Kind() {
	case value.KindUndefined:
		value.Raise("%q is undefined, it has no items", of.Name())
	case value.KindDict:
		if v, ok := of.Dict().Lookup(key); ok {
			return v
		}
	case value.KindList, value.KindTuple, value.KindString:
		if i, ok := key.Integral(); ok {
			return value.At(of, i)
		}
	}
	if key.Kind() == value.KindString {
		return getAttr(of, key.Str())
	}
	return value.Undefined("item")
}
