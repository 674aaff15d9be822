package extproc

import (
	"errors"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// refusal is what one picker.Reason looks like on the wire and in metrics.
type refusal struct {
	status int
	drop   string // drop-reason header
	kind   string // "type" of the OpenAI error object
}

// refusalOf maps a reason to the wire. It is the only place that does.
func refusalOf(r request.Reason) refusal {
	switch r {
	case request.ReasonBadRequest:
		return refusal{400, dropBadRequest, "invalid_request_error"}
	case request.ReasonTooLarge:
		return refusal{413, dropTooLarge, "invalid_request_error"}
	case request.ReasonModelNotFound:
		return refusal{404, dropModelNotFound, "invalid_request_error"}
	case request.ReasonNoEndpoints:
		return refusal{503, dropNoEndpoints, "server_error"}
	case request.ReasonNotHeld:
		return refusal{412, dropNotHeld, "invalid_request_error"}
	case request.ReasonSaturated:
		return refusal{429, dropSaturated, "rate_limit_error"}
	case request.ReasonTTLExpired:
		return refusal{503, dropTTLExpired, "server_error"}
	case request.ReasonCancelled:
		return refusal{499, dropCancelled, "server_error"}
	case request.ReasonOverloaded:
		return refusal{503, dropOverloaded, "server_error"}
	case request.ReasonShuttingDown:
		return refusal{503, dropShuttingDown, "server_error"}
	default:
		return refusal{500, dropInternal, "server_error"}
	}
}

// HeaderDropReason is the header of refusals that names their reason.
const HeaderDropReason = headerDropReason

// Refusal returns what a client is told of an error of a Chooser or of parsing: an
// HTTP status, the drop reason, and a body in JSON.
func Refusal(err error) (status int, drop string, body []byte) {
	e := asRefusal(err)
	ref := refusalOf(e.Reason)
	return ref.status, ref.drop, errorDocument(e)
}

// asRefusal returns err as the error meant for the client. The text of any
// other error stays inside.
func asRefusal(err error) *request.Error {
	var e *request.Error
	if errors.As(err, &e) {
		return e
	}
	return request.Errorf(request.ReasonInternal, "the endpoint picker could not decide")
}
