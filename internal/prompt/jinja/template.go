package jinja

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// ErrUnsupported is wrapped by errors about unsupported constructs.
var ErrUnsupported = syntax.ErrUnsupported

// ErrRaised is wrapped by errors of Render that the template raised itself.
var ErrRaised = errors.New("jinja: raised by the template")

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	*syntax.Tree
	filters []filterFunc // by the IDs of the tree
	tests   []testFunc
	loopID  int // of the name loop, -1 where the template has none
}

// Parse parses a chat template as engines configure Jinja.
func Parse(source string) (*Template, error) {
	tree, err := syntax.Parse(source)
	if err != nil {
		return nil, err
	}
	t := &Template{Tree: tree, loopID: -1}
	if id, ok := tree.ID("loop"); ok {
		t.loopID = id
	}
	for _, u := range tree.Filters {
		f := filterTable[u.Name]
		if f == nil {
			f = func(*state, value.Value, args) value.Value { raiseUnsupported("filter", u); return value.Value{} }
		}
		t.filters = append(t.filters, f)
	}
	for _, u := range tree.Tests {
		f := testTable[u.Name]
		if f == nil {
			f = func(*state, value.Value, args) bool { raiseUnsupported("test", u); return false }
		}
		t.tests = append(t.tests, f)
	}
	return t, nil
}

// raiseUnsupported ends a rendering that reached an unsupported construct. As in Jinja, a branch
// that never runs may contain one.
func raiseUnsupported(what string, u syntax.Use) {
	value.RaiseAs(ErrUnsupported, "line %d: %s %s", u.Line, what, u.Name)
}

// Var is one variable of a rendering.
type Var struct {
	Name  string
	Value value.Value
}

// Options configure a rendering.
type Options struct {
	Now       time.Time // for strftime_now
	MaxOutput int       // bytes; 0 = value.MaxSize
	// Memory bounds the bytes of the output and of all values made; 0 = 64 MiB.
	Memory int
	// More, if not nil, is called to reserve n bytes beyond Memory, up to 64 MiB in total. If it
	// returns false, the rendering ends.
	More func(n int) bool
}

// Render appends the rendering of t with the variables to dst. On an error dst
// is returned as it was. Strings of the variables are not retained.
//
// A rendering ends with the error of ctx soon after ctx has ended.
func (t *Template) Render(ctx context.Context, dst []byte, vars []Var, o Options) (out []byte, err error) {
	if o.MaxOutput == 0 {
		o.MaxOutput = value.MaxSize
	}
	if o.Memory == 0 {
		o.Memory = maxMemory
	}
	st := &state{ctx: ctx, t: t, out: dst, base: len(dst), scope: &scope{}, opts: o, filters: filterTable, tests: testTable, meter: value.Meter{Left: maxWork}}
	for _, v := range vars {
		if id, ok := t.ID(v.Name); ok {
			st.scope.set(id, v.Value)
		}
	}
	defer func() {
		if err != nil {
			out = dst
		}
	}()
	defer value.Catch(&err)
	st.block(t.Body)
	st.checkAt = 0
	st.step()
	return st.out, nil
}
