package syntax

import (
	"slices"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Mentions reports whether a string constant of the template equals s.
func (t *Tree) Mentions(s string) bool {
	for _, l := range t.literals {
		if l == s {
			return true
		}
	}
	return false
}

// Rule is how an engine finds out whether a template loops over the parts of a message's
// content.
type Rule uint8

// Rules.
const (
	// RuleLoops is the rule of vLLM before 0.30: a loop over the content of an item of messages, or
	// over a variable content.
	RuleLoops Rule = iota
	// RuleMacros is the rule of vLLM 0.30: in a macro, a loop over a parameter counts if some call
	// passes a message's content as that parameter.
	RuleMacros
	// RuleNamespaces is the rule of vLLM 0.33: RuleMacros, and messages may be an attribute of a
	// namespace.
	RuleNamespaces
	// RuleNames is the rule of SGLang: a loop over the content of message, msg or m.
	RuleNames
	numRules
)

// IteratesContent reports whether the template loops over the parts of a message's content, by a
// rule. Engines then pass content as a list of parts instead of one string.
func (t *Tree) IteratesContent(r Rule) bool { return t.content.found[r] }

// contentScan collects the data for IteratesContent.
type contentScan struct {
	loops   []loopSite
	assigns []assignSite
	calls   []*Call
	macros  []macroSite
	found   [numRules]bool
}

// loopSite is a loop. macros are the indices in contentScan.macros of the enclosing macros.
type loopSite struct {
	iter   Expr
	target []int
	macros []int
}

type assignSite struct {
	target Target
	value  Expr
}

type macroSite struct {
	name string
	args []int
	open bool // its body is being parsed
}

func (c *contentScan) loop(iter Expr, target []int) {
	l := loopSite{iter: iter, target: target}
	for i := range c.macros {
		if c.macros[i].open {
			l.macros = append(l.macros, i)
		}
	}
	c.loops = append(c.loops, l)
}

func (c *contentScan) assign(targets []Target, value Expr) {
	if len(targets) == 1 {
		c.assigns = append(c.assigns, assignSite{targets[0], value})
	}
}

// begin records a macro and returns a function that closes it.
func (c *contentScan) begin(m *Macro) (end func()) {
	at := len(c.macros)
	c.macros = append(c.macros, macroSite{name: m.Name, args: m.Args, open: true})
	return func() { c.macros[at].open = false }
}

// finish applies the rules.
func (c *contentScan) finish(ids map[string]int) {
	names := make([]string, len(ids))
	for name, id := range ids {
		names[id] = name
	}
	var found [numRules]bool
	for rule := range found {
		found[rule] = c.iterates(Rule(rule), names)
	}
	*c = contentScan{found: found}
}

func (c *contentScan) iterates(rule Rule, names []string) bool {
	var items []string
	if rule == RuleNames {
		items = []string{"message", "msg", "m"}
	} else {
		items = c.items(c.lists(rule == RuleNamespaces, names), names)
	}
	content := func(e Expr) bool {
		of, key := accessed(e)
		return key == "content" && slices.Contains(items, of)
	}
	for _, l := range c.loops {
		if content(l.iter) {
			return true
		}
		bare, ok := l.iter.(*Name)
		switch {
		case !ok || rule == RuleNames:
		case rule == RuleLoops || len(l.macros) == 0:
			if bare.Text == "content" {
				return true
			}
		default: // the innermost macro's parameters count
			m := &c.macros[l.macros[len(l.macros)-1]]
			if c.receives(m, bare.Text, names, content) {
				return true
			}
		}
	}
	return false
}

// lists returns the variables that hold messages or a part of the list.
func (c *contentScan) lists(namespaces bool, names []string) []string {
	lists := []string{"messages"}
	add := func(name string) bool {
		if slices.Contains(lists, name) {
			return false
		}
		lists = append(lists, name)
		return true
	}
	is := func(e Expr) bool {
		of, key := accessed(e)
		if key != "" {
			of += "." + key
		}
		return slices.Contains(lists, of)
	}
	for changed := true; changed; {
		changed = false
		for _, a := range c.assigns {
			target := names[a.target.ID]
			switch call, made := a.value.(*Call); {
			case a.target.Attr != "":
				changed = namespaces && is(a.value) && add(target+"."+a.target.Attr) || changed
			case is(a.value):
				changed = add(target) || changed
			case made && namespaces && isName(call.Fn, "namespace"):
				for i, key := range call.Args.Names {
					changed = is(call.Args.Vals[i]) && add(target+"."+key) || changed
				}
			}
		}
	}
	return lists
}

// items returns the names of loops over lists.
func (c *contentScan) items(lists, names []string) (items []string) {
	for _, l := range c.loops {
		of, key := accessed(l.iter)
		if key != "" {
			of += "." + key
		}
		if len(l.target) == 1 && slices.Contains(lists, of) {
			items = append(items, names[l.target[0]])
		}
	}
	return items
}

// receives reports whether some call of a macro gives the parameter of that name a
// message's content.
func (c *contentScan) receives(m *macroSite, name string, names []string, content func(Expr) bool) bool {
	at := slices.IndexFunc(m.args, func(id int) bool { return names[id] == name })
	if at < 0 {
		return false
	}
	for _, call := range c.calls {
		if !isName(call.Fn, m.name) {
			continue
		}
		if at < len(call.Args.Pos) && content(call.Args.Pos[at]) {
			return true
		}
		if i := slices.Index(call.Args.Names, name); i >= 0 && content(call.Args.Vals[i]) {
			return true
		}
	}
	return false
}

func isName(e Expr, name string) bool {
	n, ok := e.(*Name)
	return ok && n.Text == name
}

// accessed unwraps filters, tests and slices around a name or one attribute of a name. of is "" for
// any other expression.
func accessed(e Expr) (of, key string) {
	switch x := e.(type) {
	case *Filter:
		return accessed(x.Of)
	case *Test:
		return accessed(x.Of)
	case *Slice:
		return accessed(x.Of)
	case *Name:
		return x.Text, ""
	case *Attr:
		if n, ok := x.Of.(*Name); ok {
			return n.Text, x.Name
		}
	case *Item:
		n, ok1 := x.Of.(*Name)
		k, ok2 := x.Key.(*Constant)
		if ok1 && ok2 && k.Value.Kind() == value.KindString {
			return n.Text, k.Value.Str()
		}
	}
	return "", ""
}
