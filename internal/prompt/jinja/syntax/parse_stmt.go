package syntax

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// statement parses a block tag after its start.
func (p *parser) statement() Stmt {
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
	case "generation":
		return &Scope{p.bodyUntil("endgeneration")}
	case "break", "continue":
		if p.loops == 0 {
			value.Raise("line %d: %s outside of a loop", p.cur().line, word)
		}
		p.endTag()
		return &Jump{Break: word == "break"}
	case "with":
		return p.withStmt()
	case "filter":
		s := &FilterBlock{Filters: []*Filter{p.filter(nil)}}
		for p.acceptOp("|") {
			s.Filters = append(s.Filters, p.filter(nil))
		}
		s.Body = p.bodyUntil("endfilter")
		return s
	case "include", "import", "from", "extends", "block", "autoescape", "trans":
		p.unsupported("statement " + word)
	}
	value.Raise("line %d: unknown statement %q", p.cur().line, word)
	return nil
}

func (p *parser) ifStmt() Stmt {
	s := &If{}
	for {
		s.Tests = append(s.Tests, p.tuple(false))
		p.endTag()
		s.Bodies = append(s.Bodies, p.body("elif", "else", "endif"))
		switch p.next().text {
		case "elif":
			continue
		case "else":
			p.endTag()
			s.Bodies = append(s.Bodies, p.body("endif"))
			p.pos++
		}
		p.endTag()
		return s
	}
}

func (p *parser) forStmt() Stmt {
	s := &For{Target: p.targets()}
	if !p.acceptName("in") {
		p.unexpected("in")
	}
	s.Iter = p.tuple(false)
	p.t.content.loop(s.Iter, s.Target)
	if p.acceptName("if") {
		s.Keep = p.expression()
	}
	s.Recursive = p.acceptName("recursive")
	p.endTag()
	p.loops++
	s.Body = p.body("else", "endfor")
	p.loops--
	if p.next().text == "else" {
		p.endTag()
		s.Else = p.body("endfor")
		p.pos++
	}
	p.endTag()
	return s
}

// withStmt parses a with block after its name.
func (p *parser) withStmt() Stmt {
	s := &With{}
	for p.cur().kind == tokName {
		s.Names = append(s.Names, p.id(p.next().text))
		p.expectOp("=")
		s.Vals = append(s.Vals, p.expression())
		if !p.acceptOp(",") {
			break
		}
	}
	s.Body = p.bodyUntil("endwith")
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

func (p *parser) setStmt() Stmt {
	s := &Set{}
	if first := p.cur(); first.kind == tokName && p.peek().kind == tokOp && p.peek().text == "." {
		p.pos += 2
		s.Targets = []Target{{ID: p.id(first.text), Attr: p.expect(tokName, "a name").text}}
	} else {
		for _, id := range p.targets() {
			s.Targets = append(s.Targets, Target{ID: id})
		}
	}
	if p.acceptOp("=") {
		s.Value = p.tuple(true)
		p.t.content.assign(s.Targets, s.Value)
		p.endTag()
		return s
	}
	for p.acceptOp("|") {
		s.Filters = append(s.Filters, p.filter(nil))
	}
	s.Body = p.bodyUntil("endset")
	return s
}

// Caller is the name in which a call block's body reaches a macro.
const Caller = "caller"

func (p *parser) macroStmt() Stmt {
	word := p.expect(tokName, "a name").text
	s := &Macro{ID: p.id(word), Name: word}
	p.signature(s)
	end := p.t.content.begin(s)
	p.macroBody(s, "endmacro")
	end()
	return s
}

// signature parses a macro's arguments with their parentheses.
func (p *parser) signature(s *Macro) {
	p.expectOp("(")
	for !p.acceptOp(")") {
		if p.isOp("*") || p.isOp("**") {
			p.unsupported("variable arguments of a macro")
		}
		s.Args = append(s.Args, p.id(p.expect(tokName, "a name").text))
		var def Expr
		if p.acceptOp("=") {
			def = p.expression()
		}
		s.Defaults = append(s.Defaults, def)
		if !p.acceptOp(",") && !p.isOp(")") {
			p.unexpected(`"," or ")"`)
		}
	}
}

// macroBody parses a body in which break and continue cannot refer to loops outside it.
func (p *parser) macroBody(s *Macro, end string) {
	loops, callers := p.loops, p.callers
	p.loops = 0
	s.Body = p.bodyUntil(end)
	s.UsesCaller = p.callers > callers
	p.loops = loops
}

func (p *parser) callStmt() Stmt {
	s := &CallBlock{Body: &Macro{ID: p.id(Caller), Name: Caller}}
	if p.isOp("(") {
		p.signature(s.Body)
	}
	line := p.cur().line
	c, ok := p.expression().(*Call)
	if !ok {
		value.Raise("line %d: call needs a call", line)
	}
	s.Call = c
	p.macroBody(s.Body, "endcall")
	return s
}
