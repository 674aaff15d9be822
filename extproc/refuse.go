package extproc

import (
	"errors"

	"github.com/grapevine-epp/grapevine/picker"
)

// refusal is what one picker.Reason looks like on the wire and in metrics.
type refusal struct {
	status int
	drop   string // drop-reason header
	kind   string // "type" of the OpenAI error object
	label  string // metric label and "code" of the error object
}

// refusalOf maps a reason to the wire. It is the only place that does.
func refusalOf(r picker.Reason) refusal {
	switch r {
	case picker.ReasonBadRequest:
		return refusal{400, dropBadRequest, "invalid_request_error", "bad_request"}
	case picker.ReasonTooLarge:
		return refusal{413, dropTooLarge, "invalid_request_error", "request_too_large"}
	case picker.ReasonModelNotFound:
		return refusal{404, dropModelNotFound, "invalid_request_error", "model_not_found"}
	case picker.ReasonNoEndpoints:
		return refusal{503, dropNoEndpoints, "server_error", "no_endpoints"}
	case picker.ReasonSaturated:
		return refusal{429, dropSaturated, "rate_limit_error", "saturated"}
	case picker.ReasonTTLExpired:
		return refusal{503, dropTTLExpired, "server_error", "ttl_expired"}
	case picker.ReasonCancelled:
		return refusal{499, dropCancelled, "server_error", "cancelled"}
	case picker.ReasonShuttingDown:
		return refusal{503, dropShuttingDown, "server_error", "shutting_down"}
	default:
		return refusal{500, dropInternal, "server_error", "internal"}
	}
}

// asRefusal returns err as the error meant for the client. The text of any
// other error stays inside.
func asRefusal(err error) *picker.Error {
	var e *picker.Error
	if errors.As(err, &e) {
		return e
	}
	return picker.Errorf(picker.ReasonInternal, "the endpoint picker could not decide")
}
