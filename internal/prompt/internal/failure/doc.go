// Package failure carries the errors of values and templates as panics of one
// private type, from deep inside an evaluation to the function that was called
// from outside, which catches them.
package failure

import "fmt"

// failure is what panics.
type failure struct{ err error }

// End ends an evaluation with err.
func End(err error) { panic(failure{err}) }

// Raise ends an evaluation with an error.
func Raise(format string, args ...any) { End(fmt.Errorf("jinja: "+format, args...)) }

// Wrap ends an evaluation with an error that wraps a sentinel.
func Wrap(sentinel error, format string, args ...any) {
	End(fmt.Errorf("%w: "+format, append([]any{sentinel}, args...)...))
}

// Catch is deferred: it turns a failure into err; other panics go on.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}
