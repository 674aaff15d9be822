package extproc

import (
	"errors"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// refusal is the form of a request.Reason on the wire and in metrics.
type refusal struct {
	status int
	drop   string // drop-reason header
	kind   string // "type" of the OpenAI error object
}

// refusalOf maps a reason to the wire. It is the only such mapping.
func refusalOf(r request.Reason) refusal {
	switch r {
	case request.ReasonBadRequest:
		return refusal{400, wire.DropBadRequest, "invalid_request_error"}
	case request.ReasonTooLarge:
		return refusal{413, wire.DropTooLarge, "invalid_request_error"}
	case request.ReasonModelNotFound:
		return refusal{404, wire.DropModelNotFound, "invalid_request_error"}
	case request.ReasonForbidden:
		return refusal{403, wire.DropForbidden, "invalid_request_error"}
	case request.ReasonNoEndpoints:
		return refusal{503, wire.DropNoEndpoints, "server_error"}
	case request.ReasonNotHeld:
		return refusal{412, wire.DropNotHeld, "invalid_request_error"}
	case request.ReasonSaturated:
		return refusal{429, wire.DropSaturated, "rate_limit_error"}
	case request.ReasonEvicted:
		return refusal{429, wire.DropEvicted, "rate_limit_error"}
	case request.ReasonTTLExpired:
		return refusal{429, wire.DropTTLExpired, "rate_limit_error"}
	case request.ReasonCancelled:
		return refusal{499, wire.DropCancelled, "server_error"}
	case request.ReasonOverloaded:
		return refusal{503, wire.DropOverloaded, "server_error"}
	case request.ReasonShuttingDown:
		return refusal{503, wire.DropShuttingDown, "server_error"}
	default:
		return refusal{500, wire.DropInternal, "server_error"}
	}
}

// HeaderDropReason is the header of rejections with their reason.
const HeaderDropReason = wire.HeaderDropReason

// Refusal returns the response to an error of a Chooser or of parsing: an HTTP status, the drop
// reason, and a JSON body.
func Refusal(err error) (status int, drop string, body []byte) {
	e := asRefusal(err)
	ref := refusalOf(e.Reason)
	return ref.status, ref.drop, errorDocument(e)
}

// asRefusal returns err as the error for the client. The text of internal errors is not exposed.
func asRefusal(err error) *request.Error {
	var e *request.Error
	if errors.As(err, &e) {
		return e
	}
	return request.Errorf(request.ReasonInternal, "the endpoint picker could not decide")
}
