package jinja

import "strconv"

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(e expr) expr {
	for {
		switch {
		case p.acceptOp("."):
			t := p.next()
			switch t.kind {
			case tokName:
				e = &attr{e, t.text}
			case tokInt:
				n, err := strconv.ParseInt(t.text, 0, 64)
				if err != nil {
					fail("line %d: index %s", t.line, t.text)
				}
				e = &item{e, &constant{IntValue(n)}}
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
func (p *parser) suffixes(e expr) expr {
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

func (p *parser) subscript(of expr) expr {
	var parts [3]expr
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
		return &item{of, parts[0]}
	}
	return &slice{of, parts[0], parts[1], parts[2]}
}

func (p *parser) call(fn expr) expr {
	line := p.cur().line
	return &call{fn, p.args(), line}
}

// args parses call arguments with their parentheses.
func (p *parser) args() callArgs {
	p.expectOp("(")
	var a callArgs
	for !p.acceptOp(")") {
		if p.isOp("*") || p.isOp("**") {
			p.unsupported("variable arguments of a call")
		}
		if p.cur().kind == tokName && p.peek().kind == tokOp && p.peek().text == "=" {
			a.names = append(a.names, p.next().text)
			p.pos++
			a.vals = append(a.vals, p.expression())
		} else {
			if len(a.names) > 0 {
				p.unexpected("a keyword argument")
			}
			a.pos = append(a.pos, p.expression())
		}
		if !p.acceptOp(",") && !p.isOp(")") {
			p.unexpected(`"," or ")"`)
		}
	}
	return a
}

// filter parses a filter's name and arguments.
func (p *parser) filter(of expr) *filterExpr {
	t := p.expect(tokName, "a filter")
	f := &filterExpr{of: of, name: t.text, fn: filters()[t.text]}
	if f.fn == nil {
		p.unsupported("filter " + t.text)
	}
	if p.isOp("(") {
		f.args = p.args()
	}
	return f
}

// test parses what follows "is".
func (p *parser) test(of expr) expr {
	t := &testExpr{of: of, negate: p.acceptName("not")}
	word := p.expect(tokName, "a test").text
	if t.fn = tests()[word]; t.fn == nil {
		p.unsupported("test " + word)
	}
	switch c := p.cur(); {
	case p.isOp("("):
		t.args = p.args()
	case p.isName("else") || p.isName("or") || p.isName("and"):
	case p.isName("is"):
		p.unexpected("no chained test")
	case c.kind == tokName, c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, p.isOp("["), p.isOp("{"):
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	return t
}
