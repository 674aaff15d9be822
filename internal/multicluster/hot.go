package multicluster

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/monotime"
)

// Feed is the name of the feed in which the replicas of a group tell each other which
// prompts are hot, as keys by the federation's secret.
const Feed = "federation-hot"

// refreshEvery is of how many prompts that are known whole one is told again: it stays
// hot at the others too.
const refreshEvery = 8

// TracksHotPrompts reports whether prompts that are served here are remembered.
func (p *Part) TracksHotPrompts() bool { return p != nil && p.o.Hot != nil }

// Share has the other replicas of the group told of them, through what returns false
// when it could not. What they tell is taken by Deliver. It is called before Run.
func (p *Part) Share(send func(payload []byte) bool) { p.share = &hotShare{p: p, send: send} }

// tokenBytes is about how many bytes of a prompt a token stands for.
const tokenBytes = 4

// prompt is one that is to be remembered.
type prompt struct {
	by   *filter.Secret // of the federation
	keys []block.Key
}

// sets calls f for what remembers: a set for each secret that is good.
func (p *Part) sets(f func(hot *filter.Hot)) {
	v := p.o.Read()
	for _, s := range [...]*filter.Secret{v.Secret, v.Also} {
		if s == nil {
			continue
		}
		if hot := p.o.Hot(s); hot != nil {
			f(hot)
		}
	}
}

// fit has the hot sets hold no more than the pool's caches do: what they must have evicted
// is not told as held. tokens is what they hold, 0 when that is not known.
func (p *Part) fit(tokens int64) {
	if p.o.Hot == nil || tokens <= 0 {
		return
	}
	p.sets(func(hot *filter.Hot) {
		if p.most == 0 {
			p.most = hot.Capacity() // as configured
		}
		fit(hot, tokens, p.most)
	})
}

// fit does so with one set, which is configured to hold so many blocks at most. Small
// changes count for nothing, as a set that shrinks forgets.
func fit(hot *filter.Hot, tokens int64, configured int) {
	most := int(min(tokens*tokenBytes/filter.ChunkBytes, filter.MaxHot))
	most = min(max(most, 1), configured)
	if now := hot.Capacity(); most < now-now/8 || most > now+now/8 || most == configured && now != most {
		hot.SetMost(most)
	}
}

// stays queues the keys of a prompt that is served here.
func (p *Part) stays(by *filter.Secret, keys []block.Key) {
	kept := append(p.keys.Get().([]block.Key)[:0], keys...)
	select {
	case p.hot <- prompt{by, kept}:
	default:
		p.missed()
	}
}

// missed notes that a prompt is not remembered, here or by another replica, as too many came at once.
func (p *Part) missed() {
	p.dropped.Inc()
	p.misses.Add(1)
	p.missedAt.Store(monotime.Now().UnixNano())
}

// partial says that what is remembered as hot is not all that was served, "" where it is.
func (p *Part) partial(now time.Time) string {
	n := p.misses.Load()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("partial: %d prompts came faster than they could be remembered, the last %v ago",
		n, max(now.Sub(time.Unix(0, p.missedAt.Load())), 0).Round(time.Second))
}

// TrackHotPrompts enters prompts that are served here into the hot sets, until ctx ends.
func (p *Part) TrackHotPrompts(ctx context.Context) {
	var last prompt // whose set is known
	var set *filter.Hot
	touch := func(m prompt) (known int) {
		if m.by != last.by || set == nil {
			last, set = m, p.o.Hot(m.by)
		}
		if set == nil {
			return 0 // its secret has gone
		}
		return set.Touch(m.keys)
	}
	for {
		select {
		case m := <-p.hot:
			known := touch(m)
			p.share.tell(m, known)
			p.keys.Put(m.keys[:0]) //nolint:staticcheck // a slice header is what is kept
		case m := <-p.heard:
			touch(m)
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
func (h *hotShare) tell(m prompt, known int) {
	if h == nil || len(m.keys) == 0 {
		return
	}
	if h.n++; known == len(m.keys) && h.n%refreshEvery != 0 {
		return
	}
	h.buf = wire.AppendKeys(h.buf[:0], m.keys)
	if m.by != nil {
		id := m.by.ID()
		h.buf = append(h.buf, id[:]...)
	}
	if !h.send(append([]byte(nil), h.buf...)) {
		h.p.missed()
	}
}

// Deliver implements cluster.FeedSink: another replica has served a prompt.
func (p *Part) Deliver(_ string, _ uint64, payload []byte) error {
	keys, rest, err := wire.DecodeKeys(payload, nil)
	if err != nil {
		return err
	}
	m := prompt{keys: keys[:min(len(keys), filter.MaxChunks)]}
	v := p.o.Read()
	for _, s := range [...]*filter.Secret{v.Secret, v.Also} {
		if s == nil {
			continue
		}
		if id := s.ID(); len(rest) < len(id) || bytes.Equal(rest[:len(id)], id[:]) { // without a name: of before there were two
			m.by = s
			break
		}
	}
	if m.by == nil {
		return nil // by a secret that is not known here, or not yet
	}
	select {
	case p.heard <- m:
	default:
		p.missed()
	}
	return nil
}
