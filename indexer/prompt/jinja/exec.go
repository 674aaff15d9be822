package jinja

import (
	"time"
	"unsafe"
)

// Bounds of one rendering.
const (
	maxSteps     = 5_000_000
	maxCallDepth = 100
)

// Var is one variable of a rendering.
type Var struct {
	Name  string
	Value Value
}

// Options are what a rendering may use besides its variables.
type Options struct {
	Now       time.Time // for strftime_now
	MaxOutput int       // bytes; 0 = 64 MiB
}

const defaultMaxOutput = 64 << 20

// binding is a variable of a scope.
type binding struct {
	id int
	v  Value
}

// scope holds the variables that a block sets.
type scope struct {
	vars   []binding
	parent *scope
}

func (s *scope) set(id int, v Value) {
	for i := range s.vars {
		if s.vars[i].id == id {
			s.vars[i].v = v
			return
		}
	}
	s.vars = append(s.vars, binding{id, v})
}

func (s *scope) get(id int) (Value, bool) {
	for ; s != nil; s = s.parent {
		for i := range s.vars {
			if s.vars[i].id == id {
				return s.vars[i].v, true
			}
		}
	}
	return Value{}, false
}

// state is one rendering.
type state struct {
	t     *Template
	out   []byte
	base  int // where this rendering's output starts
	scope *scope
	opts  Options
	// filters and tests are here for the filters that apply others.
	filters map[string]filterFunc
	tests   map[string]testFunc

	steps int
	calls int
}

// Render appends the rendering of t with the variables to dst. On an error dst
// is returned as it was. Strings of the variables are not retained.
func (t *Template) Render(dst []byte, vars []Var, o Options) (out []byte, err error) {
	if o.MaxOutput == 0 {
		o.MaxOutput = defaultMaxOutput
	}
	st := &state{t: t, out: dst, base: len(dst), scope: &scope{}, opts: o, filters: filters(), tests: tests()}
	for _, v := range vars {
		if id, ok := t.ids[v.Name]; ok {
			st.scope.set(id, v.Value)
		}
	}
	defer func() {
		if err != nil {
			out = dst
		}
	}()
	defer catch(&err)
	st.block(t.body)
	return st.out, nil
}

// step counts work and output against their bounds.
func (st *state) step() {
	if st.steps++; st.steps > maxSteps || len(st.out)-st.base > st.opts.MaxOutput {
		failWith(ErrBounds, "%d steps, %d bytes", st.steps, len(st.out)-st.base)
	}
}

func (st *state) block(body []stmt) signal {
	for _, s := range body {
		st.step()
		if sig := s.exec(st); sig != goOn {
			return sig
		}
	}
	return goOn
}

// scoped runs body with variables of its own.
func (st *state) scoped(sc *scope, body []stmt) signal {
	old := st.scope
	st.scope = sc
	sig := st.block(body)
	st.scope = old
	return sig
}

// capture runs f and returns what it prints.
func (st *state) capture(f func()) string {
	start := len(st.out)
	f()
	s := string(st.out[start:])
	st.out = st.out[:start]
	return s
}

func (s *dataStmt) exec(st *state) signal {
	st.out = append(st.out, s.text...)
	return goOn
}

func (s *outputStmt) exec(st *state) signal {
	st.print(s.of)
	return goOn
}

// print writes an expression's value; concatenations part by part.
func (st *state) print(e expr) {
	switch x := e.(type) {
	case *plus:
		var buf [16]Value
		vals := st.evalAll(buf[:0], x.parts)
		if allStrings(vals) {
			for i := range vals {
				st.out = append(st.out, vals[i].s...)
			}
			return
		}
		st.out = appendStr(st.out, sumOf(vals))
	case *tilde:
		for _, part := range x.parts {
			st.out = appendStr(st.out, part.eval(st))
		}
	case *condExpr:
		switch {
		case x.test.eval(st).IsTrue():
			st.print(x.then)
		case x.other != nil:
			st.print(x.other)
		}
	default:
		st.out = appendStr(st.out, e.eval(st))
	}
}

func (s *ifStmt) exec(st *state) signal {
	for i, test := range s.tests {
		if test.eval(st).IsTrue() {
			return st.block(s.bodies[i])
		}
	}
	if len(s.bodies) > len(s.tests) {
		return st.block(s.bodies[len(s.tests)])
	}
	return goOn
}

func (s *setStmt) exec(st *state) signal {
	if s.value == nil {
		old := st.scope
		st.scope = &scope{parent: old}
		text := StringValue(st.capture(func() { st.block(s.body) }))
		st.scope = old
		for _, f := range s.filters {
			text = f.apply(st, text)
		}
		st.assign(s.targets[0], text)
		return goOn
	}
	v := s.value.eval(st)
	if len(s.targets) == 1 {
		st.assign(s.targets[0], v)
		return goOn
	}
	items := iterate(v)
	if len(items) != len(s.targets) {
		fail("%d values for %d names", len(items), len(s.targets))
	}
	for i, t := range s.targets {
		st.assign(t, items[i])
	}
	return goOn
}

func (st *state) assign(t target, v Value) {
	if t.attr == "" {
		st.scope.set(t.id, v)
		return
	}
	ns, _ := st.scope.get(t.id)
	if ns.kind != namespaceKind {
		fail("attribute %s is set on a %s, which is not a namespace", t.attr, ns.kind)
	}
	ns.ref.(*Dict).Set(t.attr, v)
}

func (s *filterStmt) exec(st *state) signal {
	sc := &scope{parent: st.scope}
	text := StringValue(st.capture(func() { st.scoped(sc, s.body) }))
	for _, f := range s.filters {
		text = f.apply(st, text)
	}
	st.out = appendStr(st.out, text)
	return goOn
}

func (s *withStmt) exec(st *state) signal {
	sc := &scope{parent: st.scope}
	for i, id := range s.ids {
		sc.set(id, s.values[i].eval(st))
	}
	return st.scoped(sc, s.body)
}

func (s *exprStmt) exec(st *state) signal { s.of.eval(st); return goOn }

func (s *scopeStmt) exec(st *state) signal {
	return st.scoped(&scope{parent: st.scope}, s.body)
}

func (s *jumpStmt) exec(*state) signal { return s.sig }

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
