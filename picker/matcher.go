package picker

import (
	"context"

	"github.com/grapevine-epp/grapevine/indexer/block"
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

// Held is what a Matcher knows one endpoint to hold of a prompt.
type Held struct {
	// Run is what the decision goes by: precise knowledge where it is believed,
	// else approximate, and speculative entries.
	Run block.Run
	// Precise and Approximate are the tokens that each index sees there, believed
	// or not; -1 when that index was not asked. Of several ranks Precise is the best one's.
	Precise     int32
	Approximate int32
	// Looked is set by matchers that fill Precise and Approximate. Without it
	// there is nothing that the engine's own count could be compared with.
	Looked bool
	// WantUsage asks to see what the engine reports of this request.
	WantUsage bool
	// Told is for the Matcher: when the endpoint's events had last told something, where
	// that was a moment before; else 0.
	Told int64
}

// Matcher tells which part of a prompt each endpoint holds, and is told what
// was decided. It does not change requests. Its methods are safe for
// concurrent use.
type Matcher interface {
	// Match fills held[i] with what eps[i] holds of r's prompt. held is zeroed
	// and as long as eps.
	Match(ctx context.Context, r *request.Request, eps []*endpoint.Endpoint, held []Held)
	// Chosen tells that r goes to ep, so that its blocks will be there soon.
	Chosen(r *request.Request, ep *endpoint.Endpoint)
	// Finished tells how r ended at ep, where h is what Match had found there;
	// zero when the request moved to an endpoint that nobody was asked about.
	Finished(r *request.Request, ep *endpoint.Endpoint, h Held, o Outcome)
}
