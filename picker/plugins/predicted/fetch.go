package predicted

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Fetch configures how a candidate fetches blocks that others hold.
type Fetch struct {
	Model  endpoint.TransferModel // assumed cost before measurements
	Tokens int                    // minimum tokens worth fetching, at least 1
	Store  bool                   // from a shared store rather than another endpoint
}

// holder is a candidate that holds more of the prompt than others.
type holder struct {
	at     int32 // position among all candidates; -1: none
	tokens int
	moving int64 // tokens that it still has to send to others
}

// ahead reports whether h is preferred to o as a source: it holds more, or as much and has less to
// send.
func (h *holder) ahead(o *holder) bool {
	return o.at < 0 || h.tokens > o.tokens || h.tokens == o.tokens && h.moving < o.moving
}

// findHolders finds the two candidates that hold the most of the prompt; the second one serves the
// first. Filtered candidates may send blocks as well.
func (s *scorer) findHolders(d *decision) {
	d.holders = [2]holder{{at: -1}, {at: -1}}
	if s.fetch == nil {
		return
	}
	for i := range int32(d.Candidates()) {
		h := holder{i, int(d.RunAt(i).Total()), d.All(i).Load.Moving}
		switch {
		case h.tokens < s.fetch.Tokens:
		case h.ahead(&d.holders[0]):
			d.holders[0], d.holders[1] = h, d.holders[0]
		case h.ahead(&d.holders[1]):
			d.holders[1] = h
		}
	}
}

// best returns the prediction for candidate k. Missing blocks are computed, or fetched from another
// holder if that is faster. Fetched blocks evict as much from the cache as computed ones, and the
// evicted blocks have to be computed again, so fetching has the same cost to others. With a lower
// cost, contexts would move between engines for small waits until caches held little but copies.
//
// An engine that recomputes blocks instead of fetching them is as late as without a fetch. The
// learned cost then reflects this, and fetching stops.
func (s *scorer) best(d *decision, k int) cycle.Prediction {
	w := d.Work(k)
	computed := s.predict(d, k, w)
	if s.fetch == nil {
		return computed
	}
	from := &d.holders[0]
	if from.at == d.Index(k) {
		from = &d.holders[1]
	}
	if from.at < 0 {
		return computed
	}
	tokens := min(from.tokens, w.Input-1) - int(d.Run(k).Total())
	if tokens < s.fetch.Tokens {
		return computed
	}
	fetched := s.predictOwn(d, k, endpoint.Work{Input: w.Input, New: max(w.New-tokens, 1)})
	fetched.Fetch, fetched.Fetched, fetched.From = s.fetching(d, k, from, tokens), int32(tokens), from.at
	fetched.Others = computed.Others
	if s.fetch.Store {
		fetched.From = -1
	}
	if fetched.TTFT() < computed.TTFT() {
		return fetched
	}
	return computed
}

// fetching returns the seconds until candidate k has the blocks of that many tokens. Blocks that
// the holder still has to send to others go first.
func (s *scorer) fetching(d *decision, k int, from *holder, tokens int) float64 {
	learned, m := d.Fetches(), &s.fetch.Model
	source, to := d.All(from.at).Endpoint, d.At(k).Endpoint
	seconds := learned.Seconds(m, source, to, tokens)
	if s.fetch.Store {
		return seconds
	}
	ahead := learned.PerToken(m, endpoint.Shared(source, to)) * learned.PairFactor(source, to)
	return seconds + float64(max(from.moving, 0))*ahead
}
