package jinja

// statement parses a block tag after its start.
func (p *parser) statement() stmt {
	word := p.expect(tokName, "a statement").text
	switch word {
	case "if":
		return p.ifStmt()
	case "for":
		return p.forStmt()
	case "set":
		return p.setStmt()
	case "macro":
		return p.macroStmt()
	case "call":
		return p.callStmt()
	case "filter":
		return &filterStmt{filters: p.filterChain(), body: p.bodyUntil("endfilter")}
	case "with":
		return p.withStmt()
	case "generation":
		return &scopeStmt{p.bodyUntil("endgeneration")}
	case "do":
		s := &exprStmt{p.tuple(true)}
		p.endTag()
		return s
	case "break", "continue":
		if p.loops == 0 {
			fail("line %d: %s outside of a loop", p.cur().line, word)
		}
		p.endTag()
		if word == "break" {
			return &jumpStmt{doBreak}
		}
		return &jumpStmt{doContinue}
	case "include", "import", "from", "extends", "block", "autoescape", "trans":
		p.unsupported("statement " + word)
	}
	fail("line %d: unknown statement %q", p.cur().line, word)
	return nil
}

func (p *parser) ifStmt() stmt {
	s := &ifStmt{}
	for {
		s.tests = append(s.tests, p.tuple(false))
		p.endTag()
		s.bodies = append(s.bodies, p.body("elif", "else", "endif"))
		switch p.next().text {
		case "elif":
			continue
		case "else":
			p.endTag()
			s.bodies = append(s.bodies, p.body("endif"))
			p.pos++
		}
		p.endTag()
		return s
	}
}

func (p *parser) forStmt() stmt {
	s := &forStmt{target: p.targets()}
	if !p.acceptName("in") {
		p.unexpected("in")
	}
	s.iter = p.tuple(false)
	p.t.content.loop(s.iter, s.target)
	if p.acceptName("if") {
		s.filter = p.expression()
	}
	if p.isName("recursive") {
		p.unsupported("recursive loop")
	}
	p.endTag()
	p.loops++
	s.body = p.body("else", "endfor")
	p.loops--
	if p.next().text == "else" {
		p.endTag()
		s.other = p.body("endfor")
		p.pos++
	}
	p.endTag()
	return s
}

// targets parses the names that a loop or a set assigns to.
func (p *parser) targets() []int {
	paren := p.acceptOp("(")
	var ids []int
	for {
		ids = append(ids, p.id(p.expect(tokName, "a name").text))
		if !p.acceptOp(",") || p.cur().kind != tokName {
			break
		}
	}
	if paren {
		p.expectOp(")")
	}
	return ids
}

func (p *parser) setStmt() stmt {
	s := &setStmt{}
	if first := p.cur(); first.kind == tokName && p.peek().kind == tokOp && p.peek().text == "." {
		p.pos += 2
		s.targets = []target{{p.id(first.text), p.expect(tokName, "a name").text}}
	} else {
		for _, id := range p.targets() {
			s.targets = append(s.targets, target{id: id})
		}
	}
	if p.acceptOp("=") {
		s.value = p.tuple(true)
		p.t.content.assign(s.targets, s.value)
		p.endTag()
		return s
	}
	if p.acceptOp("|") {
		s.filters = p.filterChain()
	}
	s.body = p.bodyUntil("endset")
	return s
}

// filterChain parses filters without a subject, as in filter blocks.
func (p *parser) filterChain() []*filterExpr {
	var out []*filterExpr
	for {
		out = append(out, p.filter(nil))
		if !p.acceptOp("|") {
			return out
		}
	}
}

func (p *parser) macroStmt() stmt {
	word := p.expect(tokName, "a name").text
	s := &macroStmt{id: p.id(word), name: word}
	p.signature(s)
	p.macroBody(s, "endmacro")
	return s
}

// signature parses a macro's arguments with their parentheses.
func (p *parser) signature(s *macroStmt) {
	p.expectOp("(")
	for !p.acceptOp(")") {
		if p.isOp("*") || p.isOp("**") {
			p.unsupported("variable arguments of a macro")
		}
		s.args = append(s.args, p.id(p.expect(tokName, "a name").text))
		var def expr
		if p.acceptOp("=") {
			def = p.expression()
		}
		s.defs = append(s.defs, def)
		if !p.acceptOp(",") && !p.isOp(")") {
			p.unexpected(`"," or ")"`)
		}
	}
}

// macroBody parses a body that loops outside of it do not reach into.
func (p *parser) macroBody(s *macroStmt, end string) {
	loops, callers := p.loops, p.callers
	p.loops = 0
	s.body = p.bodyUntil(end)
	s.usesCaller = p.callers > callers
	p.loops = loops
}

func (p *parser) callStmt() stmt {
	s := &callStmt{body: &macroStmt{id: p.id("caller"), name: "caller"}}
	if p.isOp("(") {
		p.signature(s.body)
	}
	line := p.cur().line
	c, ok := p.expression().(*call)
	if !ok {
		fail("line %d: call needs a call", line)
	}
	s.call = c
	p.macroBody(s.body, "endcall")
	return s
}

func (p *parser) withStmt() stmt {
	s := &withStmt{}
	for p.cur().kind != tokBlockEnd {
		s.ids = append(s.ids, p.id(p.expect(tokName, "a name").text))
		p.expectOp("=")
		s.values = append(s.values, p.expression())
		if !p.acceptOp(",") {
			break
		}
	}
	s.body = p.bodyUntil("endwith")
	return s
}
