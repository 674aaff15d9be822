package jinja

import (
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// byPath follows a dotted attribute path, as the attribute arguments of map,
// selectattr, sort and join take it.
func byPath(v, path value.Value) value.Value {
	if path.Kind() == value.KindInt {
		return getItem(v, path)
	}
	for _, part := range strings.Split(path.Text(), ".") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = getItem(v, value.Int(n))
			continue
		}
		v = getItem(v, value.String(part))
	}
	return v
}

func filterMap(st *state, in value.Value, a args) value.Value {
	if !in.IsTrue() {
		return value.List(nil) // for any kind, including None
	}
	items := st.iterate(in)
	out := make([]value.Value, 0, len(items))
	if path, ok := a.named("attribute"); ok {
		def, hasDef := a.named("default")
		for _, v := range items {
			v = byPath(v, path)
			if hasDef && v.Kind() == value.KindUndefined {
				v = def
			}
			out = append(out, v)
		}
		return value.List(out)
	}
	f := st.filters[a.strArg("map", 0)]
	if f == nil {
		raiseUnsupported("filter", syntax.Use{Name: a.strArg("map", 0)})
	}
	rest := args{pos: a.pos[1:], names: a.names, vals: a.vals}
	for _, v := range items {
		out = append(out, st.made(v, f(st, v, rest)))
	}
	return value.List(out)
}

// filterSelect is select, reject, selectattr and rejectattr.
func filterSelect(st *state, in value.Value, a args, byAttr, keep bool) value.Value {
	if !in.IsTrue() {
		return value.List(nil) // for any kind, including None
	}
	var path value.Value
	if byAttr {
		if len(a.pos) == 0 {
			value.Raise("selectattr and rejectattr need an attribute")
		}
		path, a.pos = a.pos[0], a.pos[1:]
	}
	test := func(v value.Value) bool { return v.IsTrue() }
	if len(a.pos) > 0 {
		f := st.tests[a.strArg("select", 0)]
		if f == nil {
			raiseUnsupported("test", syntax.Use{Name: a.strArg("select", 0)})
		}
		rest := args{pos: a.pos[1:]}
		test = func(v value.Value) bool { return f(st, v, rest) }
	}
	var out []value.Value
	for _, v := range st.iterate(in) {
		st.step()
		subject := v
		if byAttr {
			subject = byPath(v, path)
		}
		if test(subject) == keep {
			out = append(out, v)
		}
	}
	return value.List(out)
}

// sortKey returns the key by which sorting compares a value. Case is ignored unless caseSensitive
// is set. by is the path of an attribute, or None. The key's work and memory are counted.
func (st *state) sortKey(v, by value.Value, caseSensitive bool) value.Value {
	if by.Kind() != value.KindNone {
		v = byPath(v, by)
	}
	if v.Kind() != value.KindString || caseSensitive {
		st.step()
		return v
	}
	return st.made(v, value.String(lower(v.Str())))
}

// sorted is sort and dictsort: items in the order of their keys.
func (st *state) sorted(items []value.Value, reverse bool, key func(v value.Value) value.Value) value.Value {
	type keyed struct{ key, v value.Value }
	list := make([]keyed, len(items))
	for i, v := range items {
		list[i] = keyed{key(v), v}
	}
	slices.SortStableFunc(list, func(a, b keyed) int {
		if st.step(); reverse {
			a, b = b, a
		}
		return st.meter.Order(a.key, b.key)
	})
	out := make([]value.Value, len(list))
	for i := range list {
		out[i] = list[i].v
	}
	return value.List(out)
}

func filterSort(st *state, in value.Value, a args) value.Value {
	a.most("slices", 3, "reverse", "case_sensitive", "attribute")
	sensitive, by := a.flag(1, "case_sensitive"), a.get(2, "attribute", value.None())
	return st.sorted(st.iterate(in), a.flag(0, "reverse"), func(v value.Value) value.Value { return st.sortKey(v, by, sensitive) })
}

func filterDictSort(st *state, in value.Value, a args) value.Value {
	a.most("dictsort", 3, "case_sensitive", "by", "reverse")
	if in.Kind() != value.KindDict {
		value.Raise("dictsort: a %s is no mapping", in.Kind())
	}
	sensitive := a.flag(0, "case_sensitive")
	at := 0
	if a.get(1, "by", value.String("key")).Text() == "value" {
		at = 1
	}
	return st.sorted(dictItems(in.Dict()).Items(), a.flag(2, "reverse"), func(v value.Value) value.Value {
		return st.sortKey(v.Items()[at], value.None(), sensitive)
	})
}

func filterUnique(st *state, in value.Value, a args) value.Value {
	a.most("unique", 2, "case_sensitive", "attribute")
	sensitive, by := a.flag(0, "case_sensitive"), a.get(1, "attribute", value.None())
	seen := value.NewDict(0)
	var others, out []value.Value // keys that are no str
next:
	for _, v := range st.iterate(in) {
		k := st.sortKey(v, by, sensitive)
		if k.Kind() == value.KindString {
			if _, dup := seen.Get(k.Str()); dup {
				continue
			}
			seen.Set(k.Str(), k)
		} else {
			for _, o := range others {
				if st.meter.Equal(o, k) {
					continue next
				}
			}
			others = append(others, k)
		}
		out = append(out, v)
	}
	return value.List(out)
}
