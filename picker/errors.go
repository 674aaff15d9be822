package picker

import "fmt"

// Reason is the closed set of causes for which a request is refused. It is at
// once HTTP status, drop-reason header and metric label; extproc maps it.
type Reason uint8

// Reasons.
const (
	ReasonInternal      Reason = iota
	ReasonBadRequest           // 400: body is not JSON, or has no model
	ReasonTooLarge             // 413
	ReasonModelNotFound        // 404
	ReasonNoEndpoints          // 503
	ReasonSaturated            // 429
	ReasonTTLExpired           // 503
	ReasonCancelled            // 499
	ReasonShuttingDown         // 503
)

// Error is a refusal meant for the client.
type Error struct {
	Reason  Reason
	Message string // for the client; no prompt text
}

// Errorf returns an *Error.
func Errorf(r Reason, format string, a ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, a...)}
}

func (e *Error) Error() string { return e.Message }
