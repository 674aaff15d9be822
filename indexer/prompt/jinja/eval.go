package jinja

import "unicode/utf8"

func (e *constant) eval(*state) Value { return e.v }

func (e *name) eval(st *state) Value {
	if v, ok := st.scope.get(e.id); ok {
		return v
	}
	if f, ok := globals()[e.text]; ok {
		return f
	}
	return Value{s: e.text}
}

// evalAll appends the values of several expressions.
func (st *state) evalAll(dst []Value, list []expr) []Value {
	for _, e := range list {
		dst = append(dst, e.eval(st))
	}
	return dst
}

func (e *listExpr) eval(st *state) Value {
	items := st.evalAll(make([]Value, 0, len(e.items)), e.items)
	if e.tuple {
		return tupleValue(items)
	}
	return ListValue(items)
}

func (e *dictExpr) eval(st *state) Value {
	d := NewDict(len(e.keys))
	for i := range e.keys {
		d.setValue(e.keys[i].eval(st), e.vals[i].eval(st))
	}
	return DictValue(d)
}

func (e *attr) eval(st *state) Value { return getAttr(e.of.eval(st), e.name) }

// getAttr is Jinja's obj.name: an attribute first, then an item.
func getAttr(of Value, name string) Value {
	switch of.kind {
	case Undefined:
		fail("%q is undefined, it has no attribute %s", of.s, name)
	case DictKind:
		if dictMethods[name] != nil {
			return boundMethod(of, name)
		}
		if v, ok := of.Dict().Get(name); ok {
			return v
		}
	case namespaceKind:
		if v, ok := of.ref.(*Dict).Get(name); ok {
			return v
		}
	case loopKind:
		return of.ref.(*loop).attr(name)
	case String:
		if strMethods[name] != nil {
			return boundMethod(of, name)
		}
	case List, Tuple:
		if listMethods[name] != nil {
			return boundMethod(of, name)
		}
	}
	return Value{s: name}
}

func (e *item) eval(st *state) Value { return getItem(e.of.eval(st), e.key.eval(st)) }

// getItem is Jinja's obj[key]: an item first, then, for a str, an attribute.
func getItem(of, key Value) Value {
	switch of.kind {
	case Undefined:
		fail("%q is undefined, it has no items", of.s)
	case DictKind:
		if v, ok := of.Dict().getValue(key); ok {
			return v
		}
	case List, Tuple:
		if key.kind == Int || key.kind == Bool {
			items := of.Items()
			if i := wrap(key.n, len(items)); i >= 0 {
				return items[i]
			}
			return Value{s: "item"}
		}
	case String:
		if key.kind == Int || key.kind == Bool {
			return charAt(of.s, key.n)
		}
	}
	if key.kind == String {
		return getAttr(of, key.s)
	}
	return Value{s: "item"}
}

// wrap resolves a negative index; -1 is out of range.
func wrap(i int64, n int) int {
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return -1
	}
	return int(i)
}

func charAt(s string, i int64) Value {
	n := runeCount(s)
	k := wrap(i, n)
	if k < 0 {
		return Value{s: "item"}
	}
	at := runeOffset(s, k, n)
	_, w := utf8.DecodeRuneInString(s[at:])
	return StringValue(s[at : at+w])
}

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// runeOffset returns the byte offset of character k of s, which has n.
func runeOffset(s string, k, n int) int {
	if n == len(s) {
		return k // ASCII
	}
	at := 0
	for range k {
		_, w := utf8.DecodeRuneInString(s[at:])
		at += w
	}
	return at
}

func (e *notExpr) eval(st *state) Value { return BoolValue(!e.of.eval(st).IsTrue()) }

func (e *andExpr) eval(st *state) Value {
	if v := e.a.eval(st); !v.IsTrue() {
		return v
	}
	return e.b.eval(st)
}

func (e *orExpr) eval(st *state) Value {
	if v := e.a.eval(st); v.IsTrue() {
		return v
	}
	return e.b.eval(st)
}

func (e *condExpr) eval(st *state) Value {
	if e.test.eval(st).IsTrue() {
		return e.then.eval(st)
	}
	if e.other == nil {
		return Value{s: "the inline if-expression"}
	}
	return e.other.eval(st)
}

func (e *filterExpr) eval(st *state) Value { return e.apply(st, e.of.eval(st)) }

func (e *filterExpr) apply(st *state, in Value) Value {
	st.step()
	return e.fn(st, in, e.args.eval(st))
}

func (e *testExpr) eval(st *state) Value {
	in := e.of.eval(st)
	return BoolValue(e.fn(st, in, e.args.eval(st)) != e.negate)
}
