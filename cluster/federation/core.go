package federation

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// PeerOptions say what is arranged with one other cluster.
type PeerOptions struct {
	Name    string
	Targets []string // where to ask, in the words of the transport; any may fail
	// Export and Accept are patterns (path.Match) of namespace/name: of own pools that
	// the peer may see, and of its pools that are accepted here.
	Export, Accept []string
	Secret         *filter.Secret // of this pair; nil: that of the federation
	Rate           int            // bytes per second of filters from it and to it, each; default 1 MiB
	MaxFilter      int            // bytes of its filters, of all pools; default 32 MiB
}

// Options build a Core. Self, Replica and Boot are required.
type Options struct {
	Self    string         // name of this cluster
	Replica string         // of this process
	Boot    uint64         // tells this process from those before and beside it
	Secret  *filter.Secret // of the federation; nil: no filters
	Peers   []PeerOptions

	Lease  time.Duration // how long what is said here may be believed; default 5 s
	Beat   time.Duration // between questions; default a fifth of Lease
	Push   time.Duration // between tellings of what changed; default half of Beat
	Drain  time.Duration // between withdrawing an export and its end; default 4 leases
	Rotate time.Duration // life of a filter's key; default 24 h
}

// Bounds of what one side of a pair may take up here.
const (
	maxSessions = 64              // replicas of one cluster that ask
	maxLease    = 5 * time.Minute // that is believed
	defaultMost = 32 << 20
)

// DefaultLease is how long what is said may be believed, and DefaultRate how many bytes a
// second of filters may be sent each way, where nothing else is set.
const (
	DefaultLease = 5 * time.Second
	DefaultRate  = 1 << 20
)

var (
	errSelf = errors.New("federation: a cluster and a replica need a name")
	errPeer = errors.New("federation: a peer needs a name of its own")
)

func (o *Options) complete() error {
	if o.Self == "" || o.Replica == "" {
		return errSelf
	}
	o.Lease = min(cmp.Or(o.Lease, DefaultLease), maxLease)
	o.Beat = cmp.Or(o.Beat, o.Lease/5)
	o.Push = cmp.Or(o.Push, o.Beat/2)
	o.Drain = cmp.Or(o.Drain, 4*o.Lease)
	o.Rotate = cmp.Or(o.Rotate, 24*time.Hour)
	names := map[string]bool{o.Self: true}
	o.Peers = slices.Clone(o.Peers)
	for i := range o.Peers {
		p := &o.Peers[i]
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("%w: %q", errPeer, p.Name)
		}
		names[p.Name] = true
		for _, pattern := range slices.Concat(p.Export, p.Accept) {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("federation: peer %s: %q: %w", p.Name, pattern, err)
			}
		}
		p.Rate, p.MaxFilter = cmp.Or(p.Rate, DefaultRate), cmp.Or(p.MaxFilter, defaultMost)
	}
	slices.SortFunc(o.Peers, func(a, b PeerOptions) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// Send is a message for the transport.
type Send struct {
	Cluster string
	To      string // a target of the peer, or the link on which it asked
	Frame   []byte
}

// Core is what one replica of a cluster does in a federation: a state machine that
// messages and the clock drive, and whose answers are messages. It is not safe for
// concurrent use. What it hands out is.
//
// Each replica asks for itself, and any replica of the other cluster answers: all of
// them know the same.
type Core struct {
	o       Options
	base    time.Time // of the times in questions
	peers   []*peer
	exports []*own
	imports []Import
	shows   bool           // imports are shown in objects
	also    *filter.Secret // good beside that of the options; nil: none
	hot     map[hotKey]*filter.Hot
	epochs  uint64
	print   uint64 // see SetPrint
	unready string // why nothing is told now; "": it is
	leaving bool
	version uint64
	dirty   bool
	view    *View
	refused map[string]uint64 // messages, by reason
}

// hotKey names a set of hot prefixes: those of a pool, by keys of one secret.
type hotKey struct {
	pool   PoolKey
	secret *filter.Secret
}

// peer is the other cluster of a pair: as one that asks, and as one that is asked.
type peer struct {
	PeerOptions
	speaker
	listener
	namesakes
}

// own is an export of this cluster.
type own struct {
	Export
	gone time.Time // when it ends, if it is withdrawn; else zero
}

// New returns a Core. now is the time of every later call's clock.
func New(o Options, now time.Time) (*Core, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &Core{o: o, base: now, hot: map[hotKey]*filter.Hot{}, epochs: o.Boot, refused: map[string]uint64{}, dirty: true}
	for i := range o.Peers {
		p := &peer{PeerOptions: o.Peers[i]}
		p.speaker.open(p.Rate, o.Secret, now)
		p.listener.open(c, p, now)
		c.peers = append(c.peers, p)
	}
	return c, nil
}

// Reasons for which a message is refused, as Refusals counts them.
const (
	RefusedStranger  = "stranger"  // from a cluster that is not configured
	RefusedMalformed = "malformed" // cannot be read, or breaks a limit
	RefusedFilter    = "filter"    // a part that does not fit, or is too large
	RefusedRate      = "rate"      // more was asked for than the pair's bandwidth
	RefusedSessions  = "sessions"  // more replicas of a cluster ask than may
)

// Refusals returns how many messages were refused, by reason. The caller must not
// change it.
func (c *Core) Refusals() map[string]uint64 { return c.refused }

func (c *Core) peer(name string) *peer {
	i, ok := slices.BinarySearchFunc(c.peers, name, func(p *peer, name string) int { return cmp.Compare(p.Name, name) })
	if !ok {
		return nil
	}
	return c.peers[i]
}

// SetExports replaces what this cluster exports. A pool that is not in the list any
// more is withdrawn: it is told as draining until Drain has passed, and then no more.
// One that was in the list as draining has had that time.
func (c *Core) SetExports(list []Export, now time.Time) {
	var next []*own
	for i := range list[:min(len(list), MaxPools)] {
		next = append(next, &own{Export: list[i]})
	}
	for _, o := range c.exports {
		same := func(n *own) bool { return n.Pool == o.Pool }
		if slices.ContainsFunc(next, same) {
			continue
		}
		if o.gone.IsZero() {
			if o.Draining {
				continue
			}
			gone := own{Export: o.Export, gone: now.Add(c.o.Drain)}
			gone.Draining = true
			o = &gone
		}
		if now.Before(o.gone) && len(next) < MaxPools {
			next = append(next, o)
		}
	}
	slices.SortFunc(next, func(a, b *own) int { return comparePools(a.Pool, b.Pool) })
	changed := len(next) != len(c.exports)
	for i := range next {
		changed = changed || next[i].Pool != c.exports[i].Pool || next[i].Draining != c.exports[i].Draining
		c.dirty = c.dirty || changed || next[i].untold() != c.exports[i].untold()
	}
	c.exports = next
	c.dirty = c.dirty || changed
	for _, p := range c.peers {
		p.speaker.changed(changed)
	}
}

func comparePools(a, b PoolKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// SetImports says what this cluster shows of the exports of others, in objects. Where it
// is not called, the others are told that there are no objects here.
func (c *Core) SetImports(list []Import) {
	same := c.shows && slices.EqualFunc(c.imports, list, func(a, b Import) bool {
		return a.Pool == b.Pool && a.Reason == b.Reason && slices.Equal(a.Clusters, b.Clusters)
	})
	if same {
		return
	}
	c.imports, c.shows = slices.Clone(list), true
	for _, p := range c.peers {
		p.speaker.changed(true)
	}
}

// SetHot says which prefixes a pool's filters are made of, by keys of the secret in use.
func (c *Core) SetHot(pool PoolKey, hot *filter.Hot) { c.SetHotOf(pool, c.o.Secret, hot) }

// SetHotOf does so by keys of a secret, which is to be one of SetSecrets.
func (c *Core) SetHotOf(pool PoolKey, s *filter.Secret, hot *filter.Hot) {
	c.hot[hotKey{pool, s}] = hot
}

// SetSecrets replaces the federation's secret by use, and has what was made with also taken
// beside it; also may be nil. Filters that others are told are made with use as soon as
// they are whole. Nothing changes where the federation had no secret.
func (c *Core) SetSecrets(use, also *filter.Secret) {
	if c.o.Secret == nil || use == nil {
		return
	}
	if use = cmp.Or(c.secret(use.ID()), use); also != nil {
		also = cmp.Or(c.secret(also.ID()), also)
	}
	if use == also {
		also = nil
	}
	c.o.Secret, c.also, c.dirty = use, also, true
	for k := range c.hot {
		if k.secret != use && k.secret != also {
			delete(c.hot, k)
		}
	}
}

// secret returns which of the secrets there are has a name, nil when none has.
func (c *Core) secret(id [8]byte) *filter.Secret {
	for _, s := range [...]*filter.Secret{c.o.Secret, c.also} {
		if s != nil && s.ID() == id {
			return s
		}
	}
	return nil
}

// pairSecret returns what keys the filters of a pair: its own secret, or the federation's.
func (p *peer) pairSecret(s *filter.Secret) *filter.Secret { return cmp.Or(p.Secret, s) }

// SetReady says whether what this process would tell is to be believed; reason says why
// not. Who asks an unready one is told so, and asks another replica.
func (c *Core) SetReady(ready bool, reason string) {
	if ready {
		reason = ""
	}
	c.unready = reason
}

// Leave tells all who ask here to ask another replica.
func (c *Core) Leave(now time.Time, out []Send) []Send {
	c.leaving = true
	for _, p := range c.peers {
		for _, s := range p.sessions {
			out = c.say(p, s, now, out)
		}
	}
	return out
}

// Receive takes a message of which the transport knows that the cluster sent it. link
// is where an answer goes.
func (c *Core) Receive(cluster, link string, frame []byte, now time.Time, out []Send) []Send {
	p := c.peer(cluster)
	if p == nil {
		c.refused[RefusedStranger]++
		return out
	}
	m, err := decodeMessage(frame)
	if err != nil {
		c.refused[RefusedMalformed]++
		p.faults++
		return out
	}
	switch m := m.(type) {
	case *ask:
		p.speaker.in += uint64(len(frame))
		return c.asked(p, link, m, now, out)
	case *say:
		p.listener.in += uint64(len(frame))
		return c.heard(p, link, m, now, out)
	case *partOf:
		p.listener.in += uint64(len(frame))
		return c.gotPart(p, link, m, now, out)
	case *refuse:
		p.listener.in += uint64(len(frame))
		c.wasRefused(p, link, m, now)
	}
	return out
}

// Tick does what time asks for. It is to be called a few times in each Push.
func (c *Core) Tick(now time.Time, out []Send) []Send {
	c.exports = slices.DeleteFunc(c.exports, func(o *own) bool {
		ended := !o.gone.IsZero() && !now.Before(o.gone)
		c.dirty = c.dirty || ended
		return ended
	})
	for _, p := range c.peers {
		out = c.tickSpeaker(p, now, out)
		out = c.tickListener(p, now, out)
		c.dirty = p.look(now, c.o.Lease) || c.dirty
	}
	return out
}

// bucket is a token bucket of bytes.
type bucket struct {
	rate, tokens float64
	at           time.Time
}

func (b *bucket) fill(now time.Time) int {
	if d := now.Sub(b.at).Seconds(); d > 0 {
		b.tokens = min(b.tokens+d*b.rate, max(b.rate, filter.MaxPart))
		b.at = now
	}
	return int(b.tokens)
}

func matches(patterns []string, k PoolKey) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, k.String())
		return ok
	})
}
