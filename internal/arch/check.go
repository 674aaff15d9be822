package arch

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is one place that breaks a rule.
type Finding struct {
	Path string
	Line int // 0 where the whole file or tree is meant
	Rule string
	Text string
}

// String formats the finding as path:line: rule: text.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.Path, f.Rule, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.Path, f.Line, f.Rule, f.Text)
}

// report takes one finding.
type report func(path string, line int, text string)

// checked is the tree and the table that rules examine.
type checked struct {
	*Tree
	table Table
}

// rules lists every rule under the name that findings carry.
var rules = []struct {
	name  string
	check func(checked, report)
}{
	{"syntax", syntax},
	{"table", tables},
	{"imports", imports},
	{"pure", pureRows},
	{"registry", registries},
	{"any-map", anyMaps},
	{"doc", docs},
	{"host", hosts},
}

// Check runs every rule over the tree and returns the violations, sorted by path and line.
func Check(t *Tree, table Table) []Finding {
	var found []Finding
	for _, r := range rules {
		r.check(checked{t, table}, func(path string, line int, text string) {
			found = append(found, Finding{path, line, r.name, text})
		})
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return found
}
