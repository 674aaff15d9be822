package server

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// cacheKnowledge tells how completely the caches of endpoints are known. It is safe for concurrent
// use.
type cacheKnowledge struct {
	Pool     *endpoint.Pool
	Finder   *share.Finder
	Share    *share.Index
	Prefixes *prefix.Matcher
	Files    *modelFinder
}

// of returns how completely an endpoint's cache is known for prompts, and why it is not better; read
// is the state of its events. Without the files of its model, prompts are not matched by its events.
func (k *cacheKnowledge) of(ep *endpoint.Endpoint, read knowledge.State) (knowledge.State, string) {
	if read > knowledge.Approximate { // else there are no events to match by
		if why := k.Files.missing(ep.Base()); why != "" {
			return knowledge.Approximate, why
		}
	}
	return k.Prefixes.State(ep, read)
}

// pending counts the endpoints that publish events and are not synchronized yet.
func (k *cacheKnowledge) pending() int {
	n := 0
	for _, ep := range k.Pool.Snapshot().Endpoints {
		if k.Finder.Publishes(ep) && !ep.Down() && k.Share.Knowledge(ep.ID).State < knowledge.Partial && !k.Share.Final(ep.ID) {
			n++
		}
	}
	return n
}

// wrongPredictions describes endpoints whose events do not match the cache hits of their prompts.
func (k *cacheKnowledge) wrongPredictions() string {
	n, first := 0, ""
	eps := k.Pool.Snapshot().Endpoints
	for _, ep := range eps {
		if state, reason := k.Prefixes.State(ep, k.Share.State(ep.ID)); state == knowledge.Mismatched {
			if n++; first == "" {
				first = reason
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("predictions for %d of %d endpoints are wrong: %s", n, len(eps), first)
}

// blocksOf counts the known blocks of an endpoint, over all ranks.
func blocksOf(index *indexer.Index, ep *endpoint.Endpoint) (n int) {
	for r := range max(ep.Events.Ranks, 1) {
		n += index.Blocks(block.Source{Endpoint: ep.ID, Rank: uint16(r)})
	}
	return n
}
