package jinja

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/internal/failure"
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Bounds of one rendering.
const (
	maxSteps     = 5_000_000
	maxCallDepth = 100
)

// binding is a variable of a scope.
type binding struct {
	id int
	v  value.Value
}

// scope holds the variables that a block sets.
type scope struct {
	vars   []binding
	parent *scope
}

func (s *scope) set(id int, v value.Value) {
	for i := range s.vars {
		if s.vars[i].id == id {
			s.vars[i].v = v
			return
		}
	}
	s.vars = append(s.vars, binding{id, v})
}

func (s *scope) get(id int) (value.Value, bool) {
	for ; s != nil; s = s.parent {
		for i := range s.vars {
			if s.vars[i].id == id {
				return s.vars[i].v, true
			}
		}
	}
	return value.Value{}, false
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

// step counts work and output against their bounds.
func (st *state) step() {
	if st.steps++; st.steps > maxSteps || len(st.out)-st.base > st.opts.MaxOutput {
		failure.Wrap(value.ErrBounds, "%d steps, %d bytes", st.steps, len(st.out)-st.base)
	}
}

// scoped runs body with variables of its own.
func (st *state) scoped(sc *scope, body []syntax.Stmt) signal {
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

// assign gives a name of the current scope, or a namespace's attribute, a
// value.
func (st *state) assign(t syntax.Target, v value.Value) {
	if t.Attr == "" {
		st.scope.set(t.ID, v)
		return
	}
	ns, _ := st.scope.get(t.ID)
	if ns.Kind() != value.KindNamespace {
		failure.Raise("attribute %s is set on a %s, which is not a namespace", t.Attr, ns.Kind())
	}
	ns.Ref().(*value.Dict).Set(t.Attr, v)
}
