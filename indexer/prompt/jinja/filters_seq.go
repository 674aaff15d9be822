package jinja

import (
	"sort"
	"strconv"
	"strings"
)

// byPath follows a dotted attribute path, as the attribute arguments of map,
// selectattr, sort and join take it.
func byPath(v, path Value) Value {
	if path.kind == Int {
		return getItem(v, path)
	}
	for _, part := range strings.Split(str(path), ".") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = getItem(v, IntValue(n))
			continue
		}
		v = getItem(v, StringValue(part))
	}
	return v
}

func filterMap(st *state, in Value, a args) Value {
	items := iterate(in)
	out := make([]Value, 0, len(items))
	if path, ok := a.named("attribute"); ok {
		def, hasDef := a.named("default")
		for _, v := range items {
			v = byPath(v, path)
			if hasDef && v.kind == Undefined {
				v = def
			}
			out = append(out, v)
		}
		return ListValue(out)
	}
	f := st.filters[a.strArg("map", 0)]
	if f == nil {
		fail("map: no filter %q", a.pos[0].s)
	}
	rest := args{pos: a.pos[1:], names: a.names, vals: a.vals}
	for _, v := range items {
		st.step()
		out = append(out, f(st, v, rest))
	}
	return ListValue(out)
}

// filterSelect is select, reject, selectattr and rejectattr.
func filterSelect(st *state, in Value, a args, byAttr, keep bool) Value {
	var path Value
	if byAttr {
		if len(a.pos) == 0 {
			fail("selectattr and rejectattr need an attribute")
		}
		path, a.pos = a.pos[0], a.pos[1:]
	}
	test := func(v Value) bool { return v.IsTrue() }
	if len(a.pos) > 0 {
		f := st.tests[a.strArg("select", 0)]
		if f == nil {
			fail("select: no test %q", a.pos[0].s)
		}
		rest := args{pos: a.pos[1:]}
		test = func(v Value) bool { return f(st, v, rest) }
	}
	var out []Value
	for _, v := range iterate(in) {
		st.step()
		subject := v
		if byAttr {
			subject = byPath(v, path)
		}
		if test(subject) == keep {
			out = append(out, v)
		}
	}
	return ListValue(out)
}

// sortKey is what sorting compares: case is ignored unless asked for.
func sortKey(v Value, caseSensitive bool) Value {
	if v.kind == String && !caseSensitive {
		return StringValue(lower(v.s))
	}
	return v
}

func filterSort(_ *state, in Value, a args) Value {
	a.most("sort", 3, "reverse", "case_sensitive", "attribute")
	reverse := a.get(0, "reverse", BoolValue(false)).IsTrue()
	sensitive := a.get(1, "case_sensitive", BoolValue(false)).IsTrue()
	by := a.get(2, "attribute", NoneValue())
	out := append([]Value(nil), iterate(in)...)
	key := func(v Value) Value {
		if by.kind != None {
			v = byPath(v, by)
		}
		return sortKey(v, sensitive)
	}
	sort.SliceStable(out, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return order(key(out[i]), key(out[j])) < 0
	})
	return ListValue(out)
}

func filterDictSort(_ *state, in Value, a args) Value {
	a.most("dictsort", 3, "case_sensitive", "by", "reverse")
	if in.kind != DictKind {
		fail("dictsort: a %s is no mapping", in.kind)
	}
	sensitive := a.get(0, "case_sensitive", BoolValue(false)).IsTrue()
	at := 0
	if str(a.get(1, "by", StringValue("key"))) == "value" {
		at = 1
	}
	reverse := a.get(2, "reverse", BoolValue(false)).IsTrue()
	items := dictItems(in.Dict()).Items()
	sort.SliceStable(items, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return order(sortKey(items[i].Items()[at], sensitive), sortKey(items[j].Items()[at], sensitive)) < 0
	})
	return ListValue(items)
}

func filterUnique(_ *state, in Value, a args) Value {
	a.most("unique", 2, "case_sensitive", "attribute")
	sensitive := a.get(0, "case_sensitive", BoolValue(false)).IsTrue()
	by := a.get(1, "attribute", NoneValue())
	seen := NewDict(0)
	var out []Value
	for _, v := range iterate(in) {
		k := v
		if by.kind != None {
			k = byPath(v, by)
		}
		k = sortKey(k, sensitive)
		if _, dup := seen.getValue(k); !dup {
			seen.setValue(k, k)
			out = append(out, v)
		}
	}
	return ListValue(out)
}

func filterSum(_ *state, in Value, a args) Value {
	a.most("sum", 2, "attribute", "start")
	by := a.get(0, "attribute", NoneValue())
	total := a.get(1, "start", IntValue(0))
	for _, v := range iterate(in) {
		if by.kind != None {
			v = byPath(v, by)
		}
		total = add(total, v)
	}
	return total
}

func filterMin(_ *state, in Value, _ args) Value { return extreme(in, -1) }
func filterMax(_ *state, in Value, _ args) Value { return extreme(in, 1) }

func extreme(in Value, sign int) Value {
	items := iterate(in)
	if len(items) == 0 {
		return Value{s: "no aggregated item, sequence was empty"}
	}
	best := items[0]
	for _, v := range items[1:] {
		if order(sortKey(v, false), sortKey(best, false))*sign > 0 {
			best = v
		}
	}
	return best
}
