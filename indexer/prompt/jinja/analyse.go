package jinja

// Names tells whether the template mentions a variable.
func (t *Template) Names(name string) bool {
	_, ok := t.ids[name]
	return ok
}

// Mentions tells whether a string constant of the template equals s.
func (t *Template) Mentions(s string) bool {
	for _, l := range t.literals {
		if l == s {
			return true
		}
	}
	return false
}

// IteratesContent tells whether the template loops over the parts of a
// message's content. Engines then pass content as a list of parts instead of
// one string.
func (t *Template) IteratesContent() bool { return t.content.found }

// contentScan collects loops and assignments and answers IteratesContent, by
// the rule that vLLM documents for its content format "auto".
type contentScan struct {
	loops   []loopSite
	assigns []assignSite
	found   bool
}

type loopSite struct {
	iter   expr
	target []int
}

type assignSite struct {
	target int
	value  expr
}

func (c *contentScan) loop(iter expr, target []int) {
	c.loops = append(c.loops, loopSite{iter, target})
}

func (c *contentScan) assign(targets []target, value expr) {
	if len(targets) == 1 && targets[0].attr == "" {
		c.assigns = append(c.assigns, assignSite{targets[0].id, value})
	}
}

func (c *contentScan) finish() {
	lists := map[string]bool{"messages": true}
	ids := map[int]bool{}
	for changed := true; changed; {
		changed = false
		for _, a := range c.assigns {
			if n, key := accessed(a.value); n != nil && key == "" && (lists[n.text] || ids[n.id]) && !ids[a.target] {
				ids[a.target], changed = true, true
			}
		}
	}
	messages := map[int]bool{}
	for _, l := range c.loops {
		if n, key := accessed(l.iter); n != nil && key == "" && (lists[n.text] || ids[n.id]) && len(l.target) == 1 {
			messages[l.target[0]] = true
		}
	}
	for _, l := range c.loops {
		n, key := accessed(l.iter)
		if n == nil {
			continue
		}
		if _, bare := l.iter.(*name); bare && n.text == "content" || key == "content" && messages[n.id] {
			c.found = true
		}
	}
	*c = contentScan{found: c.found}
}

// accessed looks through filters, tests and slices at a name or at one
// attribute of a name.
func accessed(e expr) (n *name, key string) {
	switch x := e.(type) {
	case *filterExpr:
		if x.of == nil {
			return nil, ""
		}
		return accessed(x.of)
	case *testExpr:
		return accessed(x.of)
	case *slice:
		return accessed(x.of)
	case *name:
		return x, ""
	case *attr:
		if n, ok := x.of.(*name); ok {
			return n, x.name
		}
	case *item:
		n, ok1 := x.of.(*name)
		k, ok2 := x.key.(*constant)
		if ok1 && ok2 && k.v.kind == String {
			return n, k.v.s
		}
	}
	return nil, ""
}
