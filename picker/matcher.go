package picker

import (
	"context"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Prompts computes the data by which a request's prompt is matched. Its methods are safe for
// concurrent use.
type Prompts interface {
	// Fill sets Adapter, Exact, Chunks.Root, ChunkKeys, PromptBytes and InputTokens of a parsed
	// request. It may call an engine to render the prompt, within ctx.
	Fill(ctx context.Context, r *request.Request)
	// Release returns the buffers behind r.Exact, which is empty afterwards.
	Release(r *request.Request)
}

// Matcher returns the part of a prompt that each endpoint holds, and is notified of decisions. It
// does not change requests. Its methods are safe for concurrent use.
type Matcher interface {
	// Match implements [cycle.Match].
	Match(ctx context.Context, r *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch)
	// Chosen reports that r was sent to ep, so that its blocks will soon be cached there.
	Chosen(r *request.Request, ep *endpoint.Endpoint)
	// Finished reports the end of r at ep. h is the result of Match for ep, or zero if the request
	// moved to an endpoint that was not matched.
	Finished(r *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, o request.Outcome)
}
