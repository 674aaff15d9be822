package prompt

import (
	"errors"
	"fmt"
)

// Reason is why a prompt could not be rendered exactly. The set is closed because reasons are
// metric labels.
type Reason uint8

// Reasons.
const (
	ReasonNone         Reason = iota
	ReasonNoModel             // the model is not configured
	ReasonLoading             // its files are being loaded
	ReasonFailed              // its files could not be loaded
	ReasonNoTemplate          // it has no chat template
	ReasonTemplate            // the chat template failed or rejected the chat
	ReasonBody                // the body is malformed; the engine will reject it as well
	ReasonUnsupported         // the body uses a feature that cannot be rendered here
	ReasonUnknownToken        // the body contains an id that the vocabulary does not have
	ReasonEngine              // an engine failed to render it
	ReasonBudget              // no engine was queried: budget exhausted or breaker open
	ReasonMedia               // rendered up to the first image, audio or video
	ReasonBounds              // the body or its rendering would take too much memory or work
	ReasonDeadline            // out of time, or the client disconnected
	ReasonMemory              // the process has no memory left for the rendering
	NumReasons
)

var reasonNames = [NumReasons]string{
	"none", "no_model", "loading", "failed", "no_template", "template", "body", "unsupported", "unknown_token", "engine", "budget", "media", "bounds", "deadline", "memory",
}

// String returns the reason as it appears in metrics.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "invalid"
}

// Error is the only error type that rendering returns.
type Error struct {
	Reason Reason
	Err    error
}

// Error describes the failure without any text of the prompt.
func (e *Error) Error() string {
	if e.Err == nil {
		return "prompt: " + e.Reason.String()
	}
	return fmt.Sprintf("prompt: %s: %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of an error of this package, ReasonNone for nil.
func ReasonOf(err error) Reason {
	if err == nil {
		return ReasonNone
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ReasonBody
}

func failure(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}
