package syntax

import (
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// tuple parses an expression, or several with commas as a tuple. cond admits
// conditional expressions.
func (p *parser) tuple(cond bool) Expr {
	one := p.expression
	if !cond {
		one = p.or
	}
	first := one()
	if !p.isOp(",") {
		return first
	}
	items := []Expr{first}
	for p.acceptOp(",") {
		if c := p.cur(); c.kind == tokVarEnd || c.kind == tokBlockEnd || p.isOp(")") {
			break
		}
		items = append(items, one())
	}
	return &List{Items: items, Tuple: true}
}

// expression parses a conditional expression.
func (p *parser) expression() Expr {
	p.enter()
	defer p.leave()
	e := p.or()
	for p.acceptName("if") {
		c := &Cond{Then: e, Test: p.or()}
		if p.acceptName("else") {
			c.Else = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() Expr {
	e := p.and()
	for p.acceptName("or") {
		e = &Or{e, p.and()}
	}
	return e
}

func (p *parser) and() Expr {
	e := p.not()
	for p.acceptName("and") {
		e = &And{e, p.not()}
	}
	return e
}

func (p *parser) not() Expr {
	if p.acceptName("not") {
		p.enter()
		defer p.leave()
		return &Not{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() Expr {
	first := p.sum()
	c := &Compare{First: first}
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
		c.Ops = append(c.Ops, op)
		c.Rest = append(c.Rest, p.sum())
	}
	if len(c.Ops) == 0 {
		return first
	}
	return c
}

func (p *parser) sum() Expr {
	e := p.concat()
	for {
		switch {
		case p.acceptOp("+"):
			right := p.concat()
			if chain, ok := e.(*Sum); ok {
				chain.Parts = append(chain.Parts, right)
			} else {
				e = &Sum{[]Expr{e, right}}
			}
		case p.acceptOp("-"):
			e = &Binary{"-", e, p.concat()}
		default:
			return e
		}
	}
}

func (p *parser) concat() Expr {
	e := p.product()
	if !p.isOp("~") {
		return e
	}
	parts := []Expr{e}
	for p.acceptOp("~") {
		parts = append(parts, p.product())
	}
	return &Concat{parts}
}

func (p *parser) product() Expr {
	e := p.power()
	for p.isOp("*") || p.isOp("/") || p.isOp("//") || p.isOp("%") {
		e = &Binary{p.next().text, e, p.power()}
	}
	return e
}

func (p *parser) power() Expr {
	e := p.unary(true)
	for p.acceptOp("**") {
		e = &Binary{"**", e, p.unary(true)}
	}
	return e
}

func (p *parser) unary(filters bool) Expr {
	p.enter()
	defer p.leave()
	var e Expr
	switch {
	case p.acceptOp("-"):
		e = &Sign{p.unary(false), true}
	case p.acceptOp("+"):
		e = &Sign{p.unary(false), false}
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.suffixes(e)
	}
	return e
}

func (p *parser) primary() Expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &Constant{value.Bool(true)}
		case "false", "False":
			return &Constant{value.Bool(false)}
		case "none", "None":
			return &Constant{value.None()}
		}
		if t.text == Caller {
			p.callers++
		}
		return &Name{p.id(t.text), t.text}
	case tokString:
		text := t.text
		for p.cur().kind == tokString {
			text += p.next().text
		}
		p.t.literals = append(p.t.literals, text)
		return &Constant{value.String(text)}
	case tokInt:
		if n, err := strconv.ParseInt(t.text, 0, 64); err == nil {
			return &Constant{value.Int(n)}
		}
		return &Constant{value.Big(t.text)}
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			value.Raise("line %d: number %s", t.line, t.text)
		}
		return &Constant{value.Float(f)}
	case tokOp:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			return &List{Items: p.list("]")}
		case "{":
			return p.dict()
		}
	}
	p.pos--
	p.unexpected("an expression")
	return nil
}

func (p *parser) parenthesis() Expr {
	if p.acceptOp(")") {
		return &List{Tuple: true}
	}
	e := p.tuple(true)
	p.expectOp(")")
	if c, ok := e.(*Sum); ok {
		return &Sum{[]Expr{c}} // keeps (a + b) + c from joining the chain
	}
	return e
}

// list parses expressions with commas up to the closing bracket.
func (p *parser) list(end string) []Expr {
	var items []Expr
	for !p.acceptOp(end) {
		items = append(items, p.expression())
		if !p.acceptOp(",") && !p.isOp(end) {
			p.unexpected(`"," or "` + end + `"`)
		}
	}
	return items
}

func (p *parser) dict() Expr {
	d := &Dict{}
	for !p.acceptOp("}") {
		d.Keys = append(d.Keys, p.expression())
		p.expectOp(":")
		d.Vals = append(d.Vals, p.expression())
		if !p.acceptOp(",") && !p.isOp("}") {
			p.unexpected(`"," or "}"`)
		}
	}
	return d
}
