package jinja

import (
	"context"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Bounds of one rendering.
const (
	// maxWork bounds the work: a statement, a call or an element counts 1, 64
	// bytes that are copied count 1.
	maxWork      = 5_000_000
	workBytes    = 64
	maxCallDepth = 100
	// checkEvery is the work between two looks at the context.
	checkEvery = 2048
	// maxMemory bounds the bytes of the output and of the values made.
	maxMemory = 64 << 20
	// grant is the minimum number of bytes requested from More at a time.
	grant = 256 << 10
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

	ctx     context.Context
	done    int // work
	checkAt int // work count at which the context is checked again
	memory  int // bytes of the values made
	calls   int
	meter   value.Meter // of comparisons
}

// step counts a statement, a call or an iteration.
func (st *state) step() { st.work(1) }

// work counts n units of work. It ends the rendering if the work or output exceeds its limit, or
// the context has ended.
func (st *state) work(n int) {
	if st.done += n; st.done < st.checkAt {
		return
	}
	st.checkAt = st.done + checkEvery
	if st.done > maxWork || len(st.out)-st.base > st.opts.MaxOutput || !st.afford() {
		value.RaiseAs(value.ErrBounds, "%d units of work, %d bytes of output, %d bytes of values", st.done, len(st.out)-st.base, st.memory)
	}
	if err := st.ctx.Err(); err != nil {
		value.End(err)
	}
}

// afford reports whether the memory used so far is within the limit, and requests more if it is
// not.
func (st *state) afford() bool {
	for need := st.memory + len(st.out) - st.base; need > st.opts.Memory; {
		n := max(grant, need-st.opts.Memory)
		if st.opts.More == nil || st.opts.Memory+n > maxMemory || !st.opts.More(n) {
			return false
		}
		st.opts.Memory += n
	}
	return true
}

// made counts an operation on a value and the memory of its result, and returns the result. A
// result that is part of the operand takes no memory.
func (st *state) made(of, result value.Value) value.Value {
	n := 1 + of.Weight()/workBytes
	if !result.PartOf(of) {
		w := result.Weight()
		n += w / workBytes
		if st.memory += w; st.memory > st.opts.Memory {
			st.checkAt = 0
		}
	}
	st.work(n)
	return result
}

// iterate is [value.Iterate], counted.
func (st *state) iterate(v value.Value) []value.Value {
	st.work(1 + v.Weight()/workBytes)
	items := value.Iterate(v)
	if v.Items() == nil {
		st.memory += value.Size * len(items)
		st.work(len(items))
	}
	return items
}

// scoped runs body in a new scope.
func (st *state) scoped(sc *scope, body []syntax.Stmt) signal {
	old := st.scope
	st.scope = sc
	sig := st.block(body)
	st.scope = old
	return sig
}

// capture runs f and returns its output.
func (st *state) capture(f func()) string {
	start := len(st.out)
	f()
	s := string(st.out[start:])
	st.out = st.out[:start]
	st.memory += len(s)
	st.work(len(s) / workBytes)
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
		value.Raise("attribute %s is set on a %s, which is not a namespace", t.Attr, ns.Kind())
	}
	ns.Ref().(*value.Dict).Set(t.Attr, v)
}
