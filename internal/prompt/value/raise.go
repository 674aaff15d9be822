package value

import "fmt"

// raised is the panic value with which an evaluation ends early. It is private,
// so that Catch cannot swallow any other panic.
type raised struct{ err error }

// End ends the current evaluation with err. Only the function that deferred [Catch] returns; the
// frames between it and the caller of End are unwound.
func End(err error) { panic(raised{err}) }

// Raise ends the current evaluation with an error, as a raised Python exception
// would.
func Raise(format string, args ...any) { End(fmt.Errorf("jinja: "+format, args...)) }

// RaiseAs ends the current evaluation with an error that wraps sentinel.
func RaiseAs(sentinel error, format string, args ...any) {
	End(fmt.Errorf("%w: "+format, append([]any{sentinel}, args...)...))
}

// Catch is deferred. It stores the error of End, Raise or RaiseAs in err and
// lets every other panic continue.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case raised:
		*err = r.err
	default:
		panic(r)
	}
}
