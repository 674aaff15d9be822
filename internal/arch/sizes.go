package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// packageLines returns the lines of each package, tests not counted.
func (t *Tree) packageLines() map[string]int {
	lines := map[string]int{}
	t.code(func(f *file) { lines[f.pkg] += f.lines })
	return lines
}

// Summary describes the shape of a tree in a few lines: how many packages there
// are, the longest chain of imports, and the largest packages.
func Summary(t *Tree, table Table) string {
	lines := t.packageLines()
	product, productLines, all := 0, 0, 0
	for pkg, n := range lines {
		all += n
		if r, ok := table.row(pkg); ok && r.Part == Product {
			product, productLines = product+1, productLines+n
		}
	}
	largest := slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return lines[b] - lines[a] })
	var b strings.Builder
	fmt.Fprintf(&b, "packages: %d of the product (%d lines), %d in all (%d lines)\n", product, productLines, len(lines), all)
	chain := t.chain(table)
	fmt.Fprintf(&b, "longest chain of imports: %d: %s\n", len(chain), strings.Join(chain, " → "))
	fmt.Fprintf(&b, "imports within the module: %d, all between rows of the table\n", t.edges())
	b.WriteString("largest packages:")
	for _, pkg := range largest[:min(8, len(largest))] {
		fmt.Fprintf(&b, " %s %d", pkg, lines[pkg])
	}
	return b.String()
}

// graph returns the imports of each package within the module.
func (t *Tree) graph() map[string]map[string]bool {
	g := map[string]map[string]bool{}
	t.code(func(f *file) {
		if g[f.pkg] == nil {
			g[f.pkg] = map[string]bool{}
		}
		for _, spec := range f.ast.Imports {
			if to, inside := strings.CutPrefix(importPath(spec), t.module+"/"); inside {
				g[f.pkg][to] = true
			}
		}
	})
	return g
}

func (t *Tree) edges() (n int) {
	for _, to := range t.graph() {
		n += len(to)
	}
	return n
}

// chain returns the longest chain of imports among the product's packages.
func (t *Tree) chain(table Table) []string {
	g, longest := t.graph(), map[string][]string{}
	var from func(string) []string
	from = func(pkg string) []string {
		if c, ok := longest[pkg]; ok {
			return c
		}
		longest[pkg] = nil // a cycle does not compile
		best := []string{}
		for _, to := range slices.Sorted(maps.Keys(g[pkg])) {
			if c := from(to); len(c) > len(best) {
				best = c
			}
		}
		longest[pkg] = append([]string{pkg}, best...)
		return longest[pkg]
	}
	var best []string
	for _, pkg := range slices.Sorted(maps.Keys(g)) {
		if r, ok := table.row(pkg); ok && r.Part == Product {
			if c := from(pkg); len(c) > len(best) {
				best = c
			}
		}
	}
	return best
}
