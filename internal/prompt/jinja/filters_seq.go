package jinja

import (
	"sort"
	"strconv"
	"strings"

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
		return value.List(nil) // whatever it is, None included
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
		value.Raise("map: no filter %q", a.pos[0].Str())
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
		return value.List(nil) // whatever it is, None included
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
			value.Raise("select: no test %q", a.pos[0].Str())
		}
		rest := args{pos: a.pos[1:]}
		test = func(v value.Value) bool { return f(v, rest) }
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

// sortWork is the work that an item counts for when it is sorted among others.
const sortWork = 20

// sortKey is what sorting compares: case is ignored unless asked for.
func sortKey(v value.Value, caseSensitive bool) value.Value {
	if v.Kind() == value.KindString && !caseSensitive {
		return value.String(lower(v.Str()))
	}
	return v
}

func filterSort(st *state, in value.Value, a args) value.Value {
	a.most("sort", 3, "reverse", "case_sensitive", "attribute")
	reverse := a.flag(0, "reverse")
	sensitive := a.flag(1, "case_sensitive")
	by := a.get(2, "attribute", value.None())
	out := append([]value.Value(nil), st.iterate(in)...)
	st.work(len(out) * sortWork)
	key := func(v value.Value) value.Value {
		if by.Kind() != value.KindNone {
			v = byPath(v, by)
		}
		return sortKey(v, sensitive)
	}
	sort.SliceStable(out, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return value.Order(key(out[i]), key(out[j])) < 0
	})
	return value.List(out)
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
	reverse := a.flag(2, "reverse")
	items := dictItems(in.Dict()).Items()
	st.work(len(items) * sortWork)
	sort.SliceStable(items, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return value.Order(sortKey(items[i].Items()[at], sensitive), sortKey(items[j].Items()[at], sensitive)) < 0
	})
	return value.List(items)
}

func filterUnique(st *state, in value.Value, a args) value.Value {
	a.most("unique", 2, "case_sensitive", "attribute")
	sensitive := a.flag(0, "case_sensitive")
	by := a.get(1, "attribute", value.None())
	seen := value.NewDict(0)
	var out []value.Value
	for _, v := range st.iterate(in) {
		k := v
		if by.Kind() != value.KindNone {
			k = byPath(v, by)
		}
		k = sortKey(k, sensitive)
		if k.Kind() != value.KindString {
			st.work(seen.Len())
		}
		if _, dup := seen.Lookup(k); !dup {
			seen.Store(k, k)
			out = append(out, v)
		}
	}
	return value.List(out)
}
