package syntax

import (
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(e Expr) Expr {
	for {
		switch {
		case p.acceptOp("."):
			t := p.next()
			switch t.kind {
			case tokName:
				if p.isOp("(") {
					p.use(&p.t.Methods, t.text)
				}
				e = &Attr{e, t.text}
			case tokInt:
				n, err := strconv.ParseInt(t.text, 0, 64)
				if err != nil {
					value.Raise("line %d: index %s", t.line, t.text)
				}
				e = &Item{e, &Constant{value.Int(n)}}
			default:
				p.pos--
				p.unexpected("an attribute")
			}
		case p.acceptOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// suffixes parses filters, tests and calls after an expression.
func (p *parser) suffixes(e Expr) Expr {
	for {
		switch {
		case p.acceptOp("|"):
			e = p.filter(e)
		case p.acceptName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(of Expr) Expr {
	var parts [3]Expr
	n, colons := 0, 0
	for !p.isOp("]") {
		if p.acceptOp(":") {
			if colons++; colons > 2 {
				p.unexpected(`"]"`)
			}
			n = colons
			continue
		}
		if parts[n] != nil {
			p.unexpected(`"]"`)
		}
		parts[n] = p.expression()
		if p.isOp(",") {
			p.unsupported("subscript of several values")
		}
	}
	p.pos++
	if colons == 0 {
		if parts[0] == nil {
			p.unexpected("an index")
		}
		return &Item{of, parts[0]}
	}
	return &Slice{of, parts[0], parts[1], parts[2]}
}

func (p *parser) call(fn Expr) Expr {
	line := p.cur().line
	c := &Call{fn, p.args(), line}
	p.t.content.calls = append(p.t.content.calls, c)
	return c
}

// args parses call arguments with their parentheses.
func (p *parser) args() Args {
	p.expectOp("(")
	var a Args
	for !p.acceptOp(")") {
		if p.isOp("*") || p.isOp("**") {
			a.Pos = append(a.Pos, &Left{"variable arguments of a call", p.next().line})
			p.expression()
		} else if p.cur().kind == tokName && p.peek().kind == tokOp && p.peek().text == "=" {
			a.Names = append(a.Names, p.next().text)
			p.pos++
			a.Vals = append(a.Vals, p.expression())
		} else {
			if len(a.Names) > 0 {
				p.unexpected("a keyword argument")
			}
			a.Pos = append(a.Pos, p.expression())
		}
		if !p.acceptOp(",") && !p.isOp(")") {
			p.unexpected(`"," or ")"`)
		}
	}
	return a
}

// filter parses a filter's name and arguments.
func (p *parser) filter(of Expr) *Filter {
	t := p.expect(tokName, "a filter")
	f := &Filter{Of: of, ID: p.use(&p.t.Filters, t.text)}
	if p.isOp("(") {
		f.Args = p.args()
		p.applied(t.text, f.Args)
	}
	return f
}

// applied notes the filter or test that a filter applies by its name.
func (p *parser) applied(filter string, a Args) {
	at, list := 0, &p.t.Tests
	switch filter {
	case "map":
		list = &p.t.Filters
	case "select", "reject":
	case "selectattr", "rejectattr":
		at = 1
	default:
		return
	}
	if at >= len(a.Pos) {
		return
	}
	if c, ok := a.Pos[at].(*Constant); ok && c.Value.Kind() == value.KindString {
		p.use(list, c.Value.Str())
	}
}

// test parses the test after "is".
func (p *parser) test(of Expr) Expr {
	t := &Test{Of: of, Negate: p.acceptName("not")}
	t.ID = p.use(&p.t.Tests, p.expect(tokName, "a test").text)
	switch c := p.cur(); {
	case p.isOp("("):
		t.Args = p.args()
	case p.isName("else") || p.isName("or") || p.isName("and"):
	case p.isName("is"):
		p.unexpected("no chained test")
	case c.kind == tokName, c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, p.isOp("["), p.isOp("{"):
		t.Args.Pos = []Expr{p.postfix(p.primary())}
	}
	return t
}
