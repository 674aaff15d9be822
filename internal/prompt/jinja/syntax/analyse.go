package syntax

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// Mentions tells whether a string constant of the template equals s.
func (t *Tree) Mentions(s string) bool {
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
func (t *Tree) IteratesContent() bool { return t.content.found }

// contentScan collects loops and assignments and answers IteratesContent, by
// the rule that vLLM documents for its content format "auto".
type contentScan struct {
	loops   []loopSite
	assigns []assignSite
	found   bool
}

type loopSite struct {
	iter   Expr
	target []int
}

type assignSite struct {
	target int
	value  Expr
}

func (c *contentScan) loop(iter Expr, target []int) {
	c.loops = append(c.loops, loopSite{iter, target})
}

func (c *contentScan) assign(targets []Target, value Expr) {
	if len(targets) == 1 && targets[0].Attr == "" {
		c.assigns = append(c.assigns, assignSite{targets[0].ID, value})
	}
}

func (c *contentScan) finish() {
	lists := map[string]bool{"messages": true}
	ids := map[int]bool{}
	for changed := true; changed; {
		changed = false
		for _, a := range c.assigns {
			if n, key := accessed(a.value); n != nil && key == "" && (lists[n.Text] || ids[n.ID]) && !ids[a.target] {
				ids[a.target], changed = true, true
			}
		}
	}
	messages := map[int]bool{}
	for _, l := range c.loops {
		if n, key := accessed(l.iter); n != nil && key == "" && (lists[n.Text] || ids[n.ID]) && len(l.target) == 1 {
			messages[l.target[0]] = true
		}
	}
	for _, l := range c.loops {
		n, key := accessed(l.iter)
		if n == nil {
			continue
		}
		if _, bare := l.iter.(*Name); bare && n.Text == "content" || key == "content" && messages[n.ID] {
			c.found = true
		}
	}
	*c = contentScan{found: c.found}
}

// accessed looks through filters, tests and slices at a name or at one
// attribute of a name.
func accessed(e Expr) (n *Name, key string) {
	switch x := e.(type) {
	case *Filter:
		return accessed(x.Of)
	case *Test:
		return accessed(x.Of)
	case *Slice:
		return accessed(x.Of)
	case *Name:
		return x, ""
	case *Attr:
		if n, ok := x.Of.(*Name); ok {
			return n, x.Name
		}
	case *Item:
		n, ok1 := x.Of.(*Name)
		k, ok2 := x.Key.(*Constant)
		if ok1 && ok2 && k.Value.Kind() == value.KindString {
			return n, k.Value.Str()
		}
	}
	return nil, ""
}
