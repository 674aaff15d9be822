package cycle

import (
	"context"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// PrefixMatch is what one endpoint is known to hold of a prompt.
type PrefixMatch struct {
	// Run is what the decision goes by: precise knowledge where it is believed,
	// else approximate, and speculative entries.
	Run block.Run
	// Precise and Approximate are the tokens that each index sees there, believed
	// or not; -1 when that index was not asked. Of several ranks Precise is the best one's.
	Precise     int32
	Approximate int32
	// Looked is set by those who fill Precise and Approximate. Without it
	// there is nothing that the engine's own count could be compared with.
	Looked bool
	// WantUsage asks to see what the engine reports of this request.
	WantUsage bool
	// LastEvent is for the Matcher: when the endpoint's events had last told something, where
	// that was a moment before; else 0.
	LastEvent int64
}

// Match fills held[i] with what eps[i] holds of r's prompt. held is zeroed and as long as
// eps. It does not change requests, and is safe for concurrent use.
type Match func(ctx context.Context, r *request.Request, eps []*endpoint.Endpoint, held []PrefixMatch)
