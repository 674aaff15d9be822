package jinja

import (
	"errors"
	"fmt"
)

// ErrUnsupported is wrapped by errors of Parse about constructs that this
// package leaves to a complete engine.
var ErrUnsupported = errors.New("jinja: unsupported construct")

// ErrRaised is wrapped by errors of Render that the template raised itself.
var ErrRaised = errors.New("jinja: raised by the template")

// ErrBounds is wrapped when a rendering exceeds its bounds.
var ErrBounds = errors.New("jinja: rendering exceeds its bounds")

// failure carries an error up to Parse or Render.
type failure struct{ err error }

// fail ends parsing or rendering with an error.
func fail(format string, args ...any) {
	panic(failure{fmt.Errorf("jinja: "+format, args...)})
}

// failWith ends parsing or rendering with an error that wraps a sentinel.
func failWith(sentinel error, format string, args ...any) {
	panic(failure{fmt.Errorf("%w: "+format, append([]any{sentinel}, args...)...)})
}

// catch turns a failure into err; other panics go on.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}
