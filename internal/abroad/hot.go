package abroad

import (
	"context"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
)

// Feed is the name of the feed in which the replicas of a group tell each other which
// prompts are hot, as keys by the federation's secret.
const Feed = "federation-hot"

// refreshEvery is of how many prompts that are known whole one is told again: it stays
// hot at the others too.
const refreshEvery = 8

// Remembers reports whether prompts that are served here are remembered.
func (p *Part) Remembers() bool { return p != nil && p.o.Hot != nil }

// Share has the other replicas of the group told of them, through what returns false
// when it could not. What they tell is taken by Deliver. It is called before Run.
func (p *Part) Share(send func(payload []byte) bool) { p.share = &hotShare{p: p, send: send} }

// tokenBytes is about how many bytes of a prompt a token stands for.
const tokenBytes = 4

// fit has the hot set hold no more than the pool's caches do: what they must have evicted
// is not told as held. tokens is what they hold, 0 when that is not known. Small changes
// count for nothing, as a set that shrinks forgets.
func (p *Part) fit(tokens int64) {
	if p.o.Hot == nil || tokens <= 0 {
		return
	}
	most := int(min(tokens*tokenBytes/filter.ChunkBytes, filter.MaxHot))
	if p.most == 0 {
		p.most = p.o.Hot.Most()
	}
	most = min(max(most, 1), p.most)
	if now := p.o.Hot.Most(); most < now-now/8 || most > now+now/8 || most == p.most && now != most {
		p.o.Hot.SetMost(most)
	}
}

// stays queues the keys of a prompt that is served here.
func (p *Part) stays(keys []block.Key) {
	kept := append(p.keys.Get().([]block.Key)[:0], keys...)
	select {
	case p.hot <- kept:
	default:
		p.dropped.Inc()
	}
}

// Remember enters prompts that are served here into the hot set, until ctx ends.
func (p *Part) Remember(ctx context.Context) {
	for {
		select {
		case keys := <-p.hot:
			known := p.o.Hot.Touch(keys)
			p.share.tell(keys, known)
			p.keys.Put(keys[:0]) //nolint:staticcheck // a slice header is what is kept
		case keys := <-p.heard:
			p.o.Hot.Touch(keys)
		case <-ctx.Done():
			return
		}
	}
}

// hotShare tells the replicas of the group which prompts are hot, so that whichever of
// them other clusters ask tells the same. It may lose some.
type hotShare struct {
	p    *Part
	send func(payload []byte) bool
	n    uint64
	buf  []byte
}

// tell tells of a prompt of which known leading blocks were known here. It is called by
// one goroutine.
func (h *hotShare) tell(keys []block.Key, known int) {
	if h == nil || len(keys) == 0 {
		return
	}
	if h.n++; known == len(keys) && h.n%refreshEvery != 0 {
		return
	}
	h.buf = wire.AppendKeys(h.buf[:0], keys)
	if !h.send(append([]byte(nil), h.buf...)) {
		h.p.dropped.Inc()
	}
}

// Deliver implements cluster.FeedSink: another replica has served a prompt.
func (p *Part) Deliver(_ string, _ uint64, payload []byte) error {
	keys, _, err := wire.DecodeKeys(payload, nil)
	if err != nil {
		return err
	}
	select {
	case p.heard <- keys[:min(len(keys), filter.MaxChunks)]:
	default:
		p.dropped.Inc()
	}
	return nil
}
