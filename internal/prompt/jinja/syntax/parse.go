package syntax

import (
	"errors"
	"fmt"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// ErrUnsupported is wrapped by errors about constructs that are left to a
// complete engine.
var ErrUnsupported = errors.New("jinja: unsupported construct")

// maxDepth bounds how deep expressions and statements nest.
const maxDepth = 200

// maxSource bounds a template's source.
const maxSource = 1 << 20

// Tree is a parsed template.
type Tree struct {
	Body []Stmt
	// Names are the template's variables; their places are their IDs.
	Names []string
	// Filters and Tests are the filters and tests that the template applies. Methods are the
	// attributes that it calls.
	Filters, Tests, Methods []Use

	ids map[string]int
	// literals are the string constants of the source.
	literals []string
	content  contentScan
}

// ID returns the number of a name, if the template mentions it.
func (t *Tree) ID(name string) (id int, ok bool) {
	id, ok = t.ids[name]
	return id, ok
}

// Parse parses a chat template as engines configure Jinja: trim_blocks,
// lstrip_blocks, loop controls and generation blocks.
func Parse(source string) (t *Tree, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: template of %d bytes", value.ErrBounds, len(source))
	}
	defer value.Catch(&err)
	p := &parser{t: &Tree{ids: map[string]int{}}}
	p.toks = lex(source)
	p.t.Body = p.body()
	if p.cur().kind != tokEOF {
		p.unexpected("end of template")
	}
	p.t.content.finish(p.t.ids)
	return p.t, nil
}

// parser turns tokens into a tree.
type parser struct {
	t     *Tree
	toks  []token
	pos   int
	depth int
	loops int
	// callers counts mentions of caller.
	callers int
}

func (p *parser) cur() token { return p.toks[p.pos] }

func (p *parser) peek() token {
	if p.pos+1 < len(p.toks) {
		return p.toks[p.pos+1]
	}
	return p.toks[p.pos]
}

func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

// isOp reports whether the current token is the operator.
func (p *parser) isOp(op string) bool { c := p.cur(); return c.kind == tokOp && c.text == op }

// isName reports whether the current token is the keyword.
func (p *parser) isName(word string) bool { c := p.cur(); return c.kind == tokName && c.text == word }

func (p *parser) acceptOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) acceptName(word string) bool {
	if p.isName(word) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expectOp(op string) {
	if !p.acceptOp(op) {
		p.unexpected(fmt.Sprintf("%q", op))
	}
}

func (p *parser) expect(k tokKind, what string) token {
	if p.cur().kind != k {
		p.unexpected(what)
	}
	return p.next()
}

func (p *parser) unexpected(want string) {
	c := p.cur()
	value.Raise("line %d: %s expected, found %s", c.line, want, describe(c))
}

func describe(t token) string {
	switch t.kind {
	case tokEOF:
		return "the end"
	case tokData:
		return "text"
	case tokVarEnd, tokBlockEnd:
		return "the end of the tag"
	}
	return fmt.Sprintf("%.30q", t.text)
}

// use returns the index of a name in a list of uses, and adds the name if it is missing.
func (p *parser) use(list *[]Use, name string) int {
	for i, u := range *list {
		if u.Name == name {
			return i
		}
	}
	*list = append(*list, Use{name, p.cur().line})
	return len(*list) - 1
}

func (p *parser) unsupported(what string) {
	value.RaiseAs(ErrUnsupported, "line %d: %s", p.cur().line, what)
}

// enter counts nesting; the returned function leaves.
func (p *parser) enter() {
	if p.depth++; p.depth > maxDepth {
		value.RaiseAs(value.ErrBounds, "line %d: nested too deep", p.cur().line)
	}
}

func (p *parser) leave() { p.depth-- }

// id returns the number of a name.
func (p *parser) id(text string) int {
	if id, ok := p.t.ids[text]; ok {
		return id
	}
	p.t.Names = append(p.t.Names, text)
	p.t.ids[text] = len(p.t.Names) - 1
	return len(p.t.Names) - 1
}

// body parses statements up to one of the end tags or the end of the template. The end tag's name
// stays the current token.
func (p *parser) body(ends ...string) []Stmt {
	p.enter()
	defer p.leave()
	var out []Stmt
	for {
		switch c := p.cur(); c.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.unexpected(fmt.Sprintf("%v", ends))
			}
			return out
		case tokData:
			out = append(out, &Data{c.text})
			p.pos++
		case tokVarBegin:
			p.pos++
			out = append(out, &Output{p.tuple(true)})
			p.expect(tokVarEnd, "the end of the tag")
		case tokBlockBegin:
			p.pos++
			for _, end := range ends {
				if p.isName(end) {
					return out
				}
			}
			if s := p.statement(); s != nil {
				out = append(out, s)
			}
		default:
			p.unexpected("text or a tag")
		}
	}
}

func (p *parser) endTag() { p.expect(tokBlockEnd, "the end of the tag") }

// bodyUntil parses a body with one end tag, and that tag.
func (p *parser) bodyUntil(end string) []Stmt {
	p.endTag()
	body := p.body(end)
	p.pos++
	p.endTag()
	return body
}
