package request

import (
	"errors"
	"fmt"
)

// Reason is the closed set of reasons for rejecting a request. Its String is the metric label and
// the error code in the response. extproc maps it to the HTTP status and the drop-reason header.
type Reason uint8

// Reasons.
const (
	ReasonInternal      Reason = iota
	ReasonBadRequest           // 400: invalid JSON, or no model in a pool with several
	ReasonTooLarge             // 413
	ReasonModelNotFound        // 404
	ReasonNoEndpoints          // 503
	ReasonSaturated            // 429
	ReasonTTLExpired           // 429: queue time limit exceeded
	ReasonCancelled            // 499
	ReasonShuttingDown         // 503
	ReasonOverloaded           // 503: out of memory
	ReasonNotHeld              // 412: if-available and the prompt is not cached anywhere
	ReasonEvicted              // 429: evicted in favour of other requests
	ReasonForbidden            // 403: engine control call
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

// String returns the reason's wire name, "internal" for invalid values.
func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		r = ReasonInternal
	}
	return reasonNames[r]
}

// IsClientError reports whether the client caused the rejection or disconnected.
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

// Reasons returns all reasons, for tables indexed by reason.
func Reasons() []Reason {
	all := make([]Reason, numReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Error is a rejection meant for the client.
type Error struct {
	Reason  Reason
	Message string // for the client; no prompt text
}

// Errorf returns an *Error.
func Errorf(r Reason, format string, a ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, a...)}
}

func (e *Error) Error() string { return e.Message }
