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

// PeerOptions configure the relation with one other cluster.
type PeerOptions struct {
	Name    string
	Targets []string // where to send asks, in the transport's notation; any may fail
	// Export and Accept are patterns (path.Match) of namespace/name: Export for local pools that
	// the peer may see, Accept for its pools that are accepted here.
	Export, Accept []string
	Secret         *filter.Secret // of this pair; nil: the federation's secret
	Rate           int            // bytes per second of filters, per direction; default 1 MiB
	MaxFilter      int            // total bytes of its filters; default 32 MiB
}

// Options build a Core. Self, Replica and Boot are required.
type Options struct {
	Self    string         // name of this cluster
	Replica string         // name of this process
	Boot    uint64         // distinguishes this process from all others
	Secret  *filter.Secret // of the federation; nil: no filters
	Peers   []PeerOptions

	Lease  time.Duration // how long peers may use the data sent from here; default 5 s
	Beat   time.Duration // time between asks; default a fifth of Lease
	Push   time.Duration // time between updates of changed data; default half of Beat
	Drain  time.Duration // time between withdrawing an export and removing it; default 4 leases
	Rotate time.Duration // lifetime of a filter's key; default 24 h
}

// Limits on a peer's use of this cluster.
const (
	maxSessions = 64              // asking replicas per cluster
	maxLease    = 5 * time.Minute // longest lease that is accepted
	defaultMost = 32 << 20
)

// DefaultLease is the default of Options.Lease. DefaultRate is the default bandwidth for filters in
// each direction, in bytes per second.
const (
	DefaultLease = 5 * time.Second
	DefaultRate  = 1 << 20
)

var (
	errSelf = errors.New("federation: Self and Replica are required")
	errPeer = errors.New("federation: peer name is empty or not unique")
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

// Send is a message to send.
type Send struct {
	Cluster string
	To      string // a target of the peer, or the link on which its ask arrived
	Frame   []byte
}

// Core is one replica's part in a federation: a state machine driven by messages and the clock,
// whose output is messages. It is not safe for concurrent use, but the values it returns are.
//
// Each replica asks for itself, and any replica of the other cluster can answer, since all have the
// same data.
type Core struct {
	o       Options
	base    time.Time // reference for the times in asks
	peers   []*peer
	exports []*own
	imports []Import
	served  []PoolKey      // see SetServed
	serves  bool           // SetServed was called
	shows   bool           // imports are shown as objects
	also    *filter.Secret // second accepted secret; nil: none
	hot     map[hotKey]*filter.Hot
	epochs  uint64
	print   uint64 // see SetPrint
	unready string // why this replica must not answer now; "": it may
	leaving bool
	version uint64
	dirty   bool
	view    *View
	refused map[string]uint64 // rejected messages, by reason
}

// hotKey identifies the set of hot prefixes of a pool, keyed by one secret.
type hotKey struct {
	pool   PoolKey
	secret *filter.Secret
}

// peer is another cluster, both as the asking and as the answering side.
type peer struct {
	PeerOptions
	speaker
	listener
	namesakes
}

// own is an export of this cluster.
type own struct {
	Export
	gone time.Time // time of removal if withdrawn; else zero
}

// New returns a Core. Later calls use the same clock as now.
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

// Reasons for rejecting a message, as counted by Refusals.
const (
	RefusedUnknown   = "stranger"  // from an unconfigured cluster
	RefusedMalformed = "malformed" // malformed, or over a limit
	RefusedFilter    = "filter"    // a filter part that does not fit or is too large
	RefusedRate      = "rate"      // over the pair's bandwidth
	RefusedSessions  = "sessions"  // too many replicas of a cluster ask
)

// Refusals returns the number of rejected messages, by reason. The caller must not modify it.
func (c *Core) Refusals() map[string]uint64 { return c.refused }

func (c *Core) peer(name string) *peer {
	i, ok := slices.BinarySearchFunc(c.peers, name, func(p *peer, name string) int { return cmp.Compare(p.Name, name) })
	if !ok {
		return nil
	}
	return c.peers[i]
}

// SetExports replaces this cluster's exports. A pool that is no longer in the list is withdrawn: it
// is sent as draining until Drain has passed, and then omitted. A pool that was already listed as
// draining is omitted immediately.
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
		c.dirty = c.dirty || changed || next[i].omitted() != c.exports[i].omitted()
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

// SetImports sets which exports of other clusters this cluster shows as objects. If it is never
// called, peers see that this cluster has no objects.
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

// SetServed sets the pools for which this cluster's statements through this process are complete: a
// served pool that is not exported is explicitly not exported. Peers learn only names that they may
// see. If SetServed is never called, peers infer nothing from a missing export.
func (c *Core) SetServed(pools []PoolKey) {
	if c.serves && slices.Equal(c.served, pools) {
		return
	}
	c.served, c.serves = slices.Clone(pools[:min(len(pools), MaxPools)]), true
	for _, p := range c.peers {
		p.speaker.changed(true)
	}
}

// SetHot sets the hot prefixes of a pool's filters, keyed by the secret in use.
func (c *Core) SetHot(pool PoolKey, hot *filter.Hot) { c.SetHotOf(pool, c.o.Secret, hot) }

// SetHotOf is SetHot for keys of another secret, which must be one of SetSecrets.
func (c *Core) SetHotOf(pool PoolKey, s *filter.Secret, hot *filter.Hot) {
	c.hot[hotKey{pool, s}] = hot
}

// SetSecrets replaces the federation's secrets. New filters are made with use; filters made with
// also are accepted too. also may be nil. Peers get filters made with use as soon as those are
// complete. SetSecrets does nothing if the federation started without a secret.
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

// secret returns the secret with that ID, or nil.
func (c *Core) secret(id [8]byte) *filter.Secret {
	for _, s := range [...]*filter.Secret{c.o.Secret, c.also} {
		if s != nil && s.ID() == id {
			return s
		}
	}
	return nil
}

// pairSecret returns the secret for the filters of a pair: its own, or the federation's.
func (p *peer) pairSecret(s *filter.Secret) *filter.Secret { return cmp.Or(p.Secret, s) }

// SetReady sets whether this process may answer for its cluster. If not, asks are refused with
// reason, and the asking replica tries another replica.
func (c *Core) SetReady(ready bool, reason string) {
	if ready {
		reason = ""
	}
	c.unready = reason
}

// Leave directs all asking replicas to another replica.
func (c *Core) Leave(now time.Time, out []Send) []Send {
	c.leaving = true
	for _, p := range c.peers {
		for _, s := range p.sessions {
			out = c.sendState(p, s, now, out)
		}
	}
	return out
}

// Receive handles a message that the transport has authenticated as the cluster's. Answers go to
// link.
func (c *Core) Receive(cluster, link string, frame []byte, now time.Time, out []Send) []Send {
	p := c.peer(cluster)
	if p == nil {
		c.refused[RefusedUnknown]++
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

// Tick does everything that is due. Call it several times per Push.
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
