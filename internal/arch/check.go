package arch

import (
	"cmp"
	"fmt"
	"slices"
)

// Limits are the sizes that rules compare with.
type Limits struct {
	PackageLines int // of a package, tests not counted
	// Longer are the limits of packages that are not yet divided.
	Longer     map[string]int
	Packages   int // of the product: laboratory and test kits not counted
	Levels     int // of the product, which bounds its longest chain of imports
	Interfaces int // in the whole tree, tests not counted
}

// House are the project's own limits. The logs of the group are longer than others: see ADR 21.
var House = Limits{
	PackageLines: 2500, Longer: map[string]int{"cluster/internal/logs": 3700}, Packages: 95, Levels: 8, Interfaces: 33,
}

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

// checked is what rules look at.
type checked struct {
	*Tree
	table  Table
	limits Limits
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
	{"package-size", packageSizes},
	{"interfaces", interfaces},
	{"doc", docs},
	{"host", hosts},
}

// Check runs every rule over the tree and returns what breaks one, sorted by
// path and line.
func Check(t *Tree, table Table, limits Limits) []Finding {
	var found []Finding
	for _, r := range rules {
		r.check(checked{t, table, limits}, func(path string, line int, text string) {
			found = append(found, Finding{path, line, r.name, text})
		})
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return found
}
