package cycle

import (
	"context"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// PrefixMatch is the part of a prompt that one endpoint holds.
type PrefixMatch struct {
	// Run is the match that decisions use: precise if the endpoint's events are verified, otherwise
	// approximate, plus speculative entries.
	Run block.Run
	// Precise and Approximate are each index's match in tokens, whether used or not; -1 if that
	// index was not queried. With several ranks, Precise is the best rank's.
	Precise     int32
	Approximate int32
	// Looked is set if Precise and Approximate are. Without it the engine's own count has nothing
	// to compare with.
	Looked bool
	// WantUsage requests the engine's usage report for this request.
	WantUsage bool
	// LastEvent is for the Matcher: when the endpoint's last event arrived, if recent; otherwise 0.
	LastEvent int64
}

// Match sets held[i] to the part of r's prompt that eps[i] holds. held is zeroed and has the length
// of eps. Match must not change requests, and must be safe for concurrent use.
type Match func(ctx context.Context, r *request.Request, eps []*endpoint.Endpoint, held []PrefixMatch)
