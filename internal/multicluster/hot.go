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

// Feed is the name of the feed with which a group's replicas share hot prompts, as keys with the
// federation's secret.
const Feed = "federation-hot"

// refreshEvery: one in this many completely known prompts is sent again, so that it stays hot at
// the other replicas.
const refreshEvery = 8

// TracksHotPrompts reports whether prompts served here are recorded.
func (p *Part) TracksHotPrompts() bool { return p != nil && p.o.Hot != nil }

// Share sends hot prompts to the group's other replicas. send returns false if it dropped the
// payload. Deliver receives their prompts. Call Share before Run.
func (p *Part) Share(send func(payload []byte) bool) { p.share = &hotShare{p: p, send: send} }

// tokenBytes is the approximate number of prompt bytes per token.
const tokenBytes = 4

// prompt is a prompt to record.
type prompt struct {
	by   *filter.Secret // of the federation
	keys []block.Key
}

// sets calls f for each hot set: one per accepted secret.
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

// fit limits the hot sets to the size of the pool's caches, so that evicted blocks are not
// announced. tokens is the cache size, 0 if unknown.
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

// fit limits one set, which is configured for that many blocks. Small changes are ignored, because
// shrinking a set drops blocks.
func fit(hot *filter.Hot, tokens int64, configured int) {
	most := int(min(tokens*tokenBytes/filter.ChunkBytes, filter.MaxHot))
	most = min(max(most, 1), configured)
	if now := hot.Capacity(); most < now-now/8 || most > now+now/8 || most == configured && now != most {
		hot.SetMost(most)
	}
}

// stays queues the keys of a prompt served here.
func (p *Part) stays(by *filter.Secret, keys []block.Key) {
	kept := append(p.keys.Get().([]block.Key)[:0], keys...)
	select {
	case p.hot <- prompt{by, kept}:
	default:
		p.missed()
	}
}

// missed counts a prompt that was not recorded, here or at another replica, because of overload.
func (p *Part) missed() {
	p.dropped.Inc()
	p.misses.Add(1)
	p.missedAt.Store(monotime.Now().UnixNano())
}

// partial returns why the hot sets are incomplete, or "".
func (p *Part) partial(now time.Time) string {
	n := p.misses.Load()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("partial: %d prompts were dropped because they arrived too fast, the last %v ago",
		n, max(now.Sub(time.Unix(0, p.missedAt.Load())), 0).Round(time.Second))
}

// TrackHotPrompts adds prompts served here to the hot sets until ctx ends.
func (p *Part) TrackHotPrompts(ctx context.Context) {
	var last prompt // the one that set belongs to
	var set *filter.Hot
	touch := func(m prompt) (known int) {
		if m.by != last.by || set == nil {
			last, set = m, p.o.Hot(m.by)
		}
		if set == nil {
			return 0 // its secret is no longer accepted
		}
		return set.Touch(m.keys)
	}
	for {
		select {
		case m := <-p.hot:
			known := touch(m)
			p.share.publish(m, known)
			p.keys.Put(m.keys[:0]) //nolint:staticcheck // the pool keeps a slice header
		case m := <-p.received:
			touch(m)
		case <-ctx.Done():
			return
		}
	}
}

// hotShare shares hot prompts within the group, so that all replicas announce the same to other
// clusters. It may lose some.
type hotShare struct {
	p    *Part
	send func(payload []byte) bool
	n    uint64
	buf  []byte
}

// publish sends a prompt. known is the number of leading blocks already known here. Not safe for
// concurrent use.
func (h *hotShare) publish(m prompt, known int) {
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

// Deliver implements cluster.FeedSink for prompts served by other replicas.
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
		if id := s.ID(); len(rest) < len(id) || bytes.Equal(rest[:len(id)], id[:]) { // without an ID: from before there were two secrets
			m.by = s
			break
		}
	}
	if m.by == nil {
		return nil // its secret is unknown here, or not known yet
	}
	select {
	case p.received <- m:
	default:
		p.missed()
	}
	return nil
}
