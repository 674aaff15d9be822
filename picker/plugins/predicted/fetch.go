package predicted

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Fetch says how a candidate comes by blocks that others hold and it lacks.
type Fetch struct {
	Model  endpoint.TransferModel // what is assumed of it until it was measured
	Tokens int                    // least tokens that are worth asking for, at least 1
	Store  bool                   // from a store that all endpoints share, not from one of them
}

// holder is a candidate that holds more of the prompt than others.
type holder struct {
	at     int32 // position among all candidates; -1: nobody
	tokens int
	moving int64 // tokens that others are to get from it
}

// ahead reports whether h is to be asked before o: it holds more, or as much and
// has less to send.
func (h *holder) ahead(o *holder) bool {
	return o.at < 0 || h.tokens > o.tokens || h.tokens == o.tokens && h.moving < o.moving
}

// findHolders finds the two candidates that hold most of the prompt, the second
// for the first itself. Those that filters left out for this request may send
// nevertheless.
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

// best returns what the request would meet at candidate k: what is missing there is
// computed, or fetched as far as another one holds it where that is sooner. What is
// fetched displaces as much from the cache as what is computed, and somebody computes
// that again, so fetching costs others as much: a price of its own makes contexts go
// from engine to engine for small waits until caches hold little but copies.
//
// An engine that computes what it was to fetch is as late as one that was not asked to,
// is expected to be so from then on, and is asked no more.
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
	fetched := s.Predict(d.At(k).Cost, &d.At(k).Load, endpoint.Work{Input: w.Input, New: max(w.New-tokens, 1)}, d.waits[k], d.answer)
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

// fetching returns the seconds until candidate k has so many tokens' blocks: those
// that the holder is to send to others go first.
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
