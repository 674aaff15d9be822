package plugin

import "slices"

// Table is a list of plugin types, in the manual's order.
type Table []Type

// With returns the table with more types, each after the others of its kind. They replace rows with
// the same name.
func (t Table) With(more ...Type) Table {
	out := slices.DeleteFunc(slices.Clone(t), func(row Type) bool {
		return slices.ContainsFunc(more, func(m Type) bool { return m.Name == row.Name })
	})
	for _, m := range more {
		at := len(out)
		for i, row := range out {
			if row.Kind == m.Kind {
				at = i + 1
			}
		}
		out = slices.Insert(out, at, m)
	}
	return out
}

// Find returns the type with a name or alias.
func (t Table) Find(name string) (Type, bool) {
	for _, row := range t {
		if row.Name == name || slices.Contains(row.Aliases, name) {
			return row, true
		}
	}
	return Type{}, false
}

// Names returns all names, without aliases, in table order.
func (t Table) Names() []string {
	out := make([]string, len(t))
	for i, row := range t {
		out[i] = row.Name
	}
	return out
}
