package jinja

import "strconv"

// tuple parses an expression, or several with commas as a tuple. cond admits
// conditional expressions.
func (p *parser) tuple(cond bool) expr {
	one := p.expression
	if !cond {
		one = p.or
	}
	first := one()
	if !p.isOp(",") {
		return first
	}
	items := []expr{first}
	for p.acceptOp(",") {
		if c := p.cur(); c.kind == tokVarEnd || c.kind == tokBlockEnd || p.isOp(")") {
			break
		}
		items = append(items, one())
	}
	return &listExpr{items: items, tuple: true}
}

// expression parses a conditional expression.
func (p *parser) expression() expr {
	p.enter()
	defer p.leave()
	e := p.or()
	for p.acceptName("if") {
		c := &condExpr{then: e, test: p.or()}
		if p.acceptName("else") {
			c.other = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.acceptName("or") {
		e = &orExpr{e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.acceptName("and") {
		e = &andExpr{e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if p.acceptName("not") {
		p.enter()
		defer p.leave()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	first := p.sum()
	c := &compare{first: first}
	for {
		op := ""
		switch t := p.cur(); {
		case t.kind == tokOp && (t.text == "==" || t.text == "!=" || t.text == "<" || t.text == "<=" || t.text == ">" || t.text == ">="):
			op = t.text
		case p.isName("in"):
			op = "in"
		case p.isName("not") && p.peek().kind == tokName && p.peek().text == "in":
			p.pos++
			op = "not in"
		}
		if op == "" {
			break
		}
		p.pos++
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return first
	}
	return c
}

func (p *parser) sum() expr {
	e := p.concat()
	for {
		switch {
		case p.acceptOp("+"):
			right := p.concat()
			if chain, ok := e.(*plus); ok {
				chain.parts = append(chain.parts, right)
			} else {
				e = &plus{[]expr{e, right}}
			}
		case p.acceptOp("-"):
			e = &binary{"-", e, p.concat()}
		default:
			return e
		}
	}
}

func (p *parser) concat() expr {
	e := p.product()
	if !p.isOp("~") {
		return e
	}
	parts := []expr{e}
	for p.acceptOp("~") {
		parts = append(parts, p.product())
	}
	return &tilde{parts}
}

func (p *parser) product() expr {
	e := p.power()
	for p.isOp("*") || p.isOp("/") || p.isOp("//") || p.isOp("%") {
		e = &binary{p.next().text, e, p.power()}
	}
	return e
}

func (p *parser) power() expr {
	e := p.unary(true)
	for p.acceptOp("**") {
		e = &binary{"**", e, p.unary(true)}
	}
	return e
}

func (p *parser) unary(filters bool) expr {
	p.enter()
	defer p.leave()
	var e expr
	switch {
	case p.acceptOp("-"):
		e = &negExpr{p.unary(false), true}
	case p.acceptOp("+"):
		e = &negExpr{p.unary(false), false}
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.suffixes(e)
	}
	return e
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constant{BoolValue(true)}
		case "false", "False":
			return &constant{BoolValue(false)}
		case "none", "None":
			return &constant{NoneValue()}
		}
		if t.text == callerName {
			p.callers++
		}
		return &name{p.id(t.text), t.text}
	case tokString:
		text := t.text
		for p.cur().kind == tokString {
			text += p.next().text
		}
		p.t.literals = append(p.t.literals, text)
		return &constant{StringValue(text)}
	case tokInt:
		if n, err := strconv.ParseInt(t.text, 0, 64); err == nil {
			return &constant{IntValue(n)}
		}
		return &constant{Value{kind: Big, s: t.text}}
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			fail("line %d: number %s", t.line, t.text)
		}
		return &constant{FloatValue(f)}
	case tokOp:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			return &listExpr{items: p.list("]")}
		case "{":
			return p.dict()
		}
	}
	p.pos--
	p.unexpected("an expression")
	return nil
}

func (p *parser) parenthesis() expr {
	if p.acceptOp(")") {
		return &listExpr{tuple: true}
	}
	e := p.tuple(true)
	p.expectOp(")")
	if c, ok := e.(*plus); ok {
		return &plus{[]expr{c}} // keeps (a + b) + c from joining the chain
	}
	return e
}

// list parses expressions with commas up to the closing bracket.
func (p *parser) list(end string) []expr {
	var items []expr
	for !p.acceptOp(end) {
		items = append(items, p.expression())
		if !p.acceptOp(",") && !p.isOp(end) {
			p.unexpected(`"," or "` + end + `"`)
		}
	}
	return items
}

func (p *parser) dict() expr {
	d := &dictExpr{}
	for !p.acceptOp("}") {
		d.keys = append(d.keys, p.expression())
		p.expectOp(":")
		d.vals = append(d.vals, p.expression())
		if !p.acceptOp(",") && !p.isOp("}") {
			p.unexpected(`"," or "}"`)
		}
	}
	return d
}
