package request

import (
	"errors"
	"fmt"
)

// Reason is the closed set of causes for which a request is refused. Its String
// is the metric label and the code of the error that the client reads; extproc
// maps it to the HTTP status and the drop-reason header.
type Reason uint8

// Reasons.
const (
	ReasonInternal      Reason = iota
	ReasonBadRequest           // 400: body is not JSON, or has no model where there are several
	ReasonTooLarge             // 413
	ReasonModelNotFound        // 404
	ReasonNoEndpoints          // 503
	ReasonSaturated            // 429
	ReasonTTLExpired           // 429: it waited for capacity as long as it may
	ReasonCancelled            // 499
	ReasonShuttingDown         // 503
	ReasonOverloaded           // 503: no memory left
	ReasonNotHeld              // 412: wanted only where the prompt is held
	ReasonEvicted              // 429: it was served, and made way for others
	ReasonForbidden            // 403: it would control an engine
	numReasons          = iota
)

var reasonNames = [numReasons]string{
	ReasonInternal:      "internal",
	ReasonBadRequest:    "bad_request",
	ReasonTooLarge:      "request_too_large",
	ReasonModelNotFound: "model_not_found",
	ReasonNoEndpoints:   "no_endpoints",
	ReasonSaturated:     "saturated",
	ReasonTTLExpired:    "ttl_expired",
	ReasonCancelled:     "cancelled",
	ReasonShuttingDown:  "shutting_down",
	ReasonOverloaded:    "overloaded",
	ReasonNotHeld:       "not_held",
	ReasonEvicted:       "evicted",
	ReasonForbidden:     "forbidden",
}

// String returns the reason's name on the wire, "internal" for a value outside
// of the set.
func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		r = ReasonInternal
	}
	return reasonNames[r]
}

// IsClientError reports whether the client did something wrong, or gave up.
func (r Reason) IsClientError() bool {
	switch r {
	case ReasonBadRequest, ReasonTooLarge, ReasonModelNotFound, ReasonCancelled, ReasonForbidden:
		return true
	}
	return false
}

// ReasonOf returns the reason of an *Error, ReasonInternal for any other error.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) && e.Reason < numReasons {
		return e.Reason
	}
	return ReasonInternal
}

// Reasons returns all reasons, for tables indexed by them.
func Reasons() []Reason {
	all := make([]Reason, numReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

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
