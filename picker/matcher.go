package picker

import (
	"context"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Prompts produces what a request's prompt is matched by. Its methods are safe
// for concurrent use.
type Prompts interface {
	// Fill sets Adapter, Exact, Chunks.Root, ChunkKeys, PromptBytes and
	// InputTokens of a parsed request. It may ask an engine to render the prompt,
	// no longer than ctx allows.
	Fill(ctx context.Context, r *request.Request)
	// Release takes back the buffers behind r.Exact, which is empty afterwards.
	Release(r *request.Request)
}

// Matcher tells which part of a prompt each endpoint holds, and is told what
// was decided. It does not change requests. Its methods are safe for
// concurrent use.
type Matcher interface {
	// Match is as cycle.Match says.
	Match(ctx context.Context, r *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch)
	// Chosen tells that r goes to ep, so that its blocks will be there soon.
	Chosen(r *request.Request, ep *endpoint.Endpoint)
	// Finished tells how r ended at ep, where h is what Match had found there;
	// zero when the request moved to an endpoint that nobody was asked about.
	Finished(r *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, o request.Outcome)
}
