package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/internal/stream"
)

// Bus is a cluster.Bus over gossip and streams.
type Bus struct {
	opt        Options
	files      certFiles
	meta       atomic.Pointer[meta]
	mlog       *memberlistLog
	ring       *memberlist.Keyring
	list       *memberlist.Memberlist
	streams    *stream.Streams
	handler    cluster.Handler
	changed    chan struct{}
	nodes      roster
	reaches    func(id string) (now, ever bool) // of the handler
	gone       departed
	proofs     proofs
	announcing sync.Mutex // serializes announcements of members
	leaving    atomic.Bool
	cancel     context.CancelFunc
	wg         sync.WaitGroup

	mu      sync.Mutex
	joinErr error
	closed  bool
}

// New validates the options.
func New(opt Options) (*Bus, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Bus{
		opt: opt, changed: make(chan struct{}, 1), files: certFiles{cert: opt.CertFile, key: opt.KeyFile, ca: opt.CAFile},
		mlog: newMemberlistLog(opt.Logger),
	}, nil
}

// Open joins the group. It returns once the configured members were contacted. It fails if a port
// cannot be bound or no member can reach the advertised address.
func (b *Bus) Open(ctx context.Context, h cluster.Handler) error {
	b.handler, b.reaches = h, func(string) (bool, bool) { return false, true }
	if r, ok := h.(reacher); ok {
		b.reaches = r.Reaches
	}
	if err := b.start(); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel = cancel
	b.wg.Go(func() { b.follow(run) })
	b.join(ctx)
	b.wg.Go(func() { b.rejoin(run) })
	if b.opt.CertFile != "" {
		b.wg.Go(func() { b.recertify(run) })
	}
	b.opt.Logger.Info("cluster member", "id", b.opt.Self.ID, "advertised", b.advertised(),
		"members", b.list.NumMembers(), "encrypted", len(b.opt.Keys) > 0, "tcp_only", b.opt.TCPOnly)
	if len(b.opt.Keys) == 0 {
		b.opt.Logger.Warn("gossip is not encrypted: any client that reaches the port can join; set a key")
	}
	if err := b.checkReach(ctx); err != nil {
		return errors.Join(err, b.Leave(ctx), b.Close())
	}
	return nil
}

// start binds both ports and starts memberlist.
func (b *Bus) start() (err error) {
	cert, roots, _, err := b.files.read()
	if err != nil {
		return err
	}
	b.streams, err = stream.New(stream.Options{
		Self: b.opt.Self, Label: b.opt.Label, Bind: b.opt.StreamBind, Certificate: cert,
		Roots: roots, QueueBytes: b.opt.QueueBytes, Limit: b.opt.Limit, Logger: b.opt.Logger,
	})
	if err != nil {
		return err
	}
	b.streams.Open(prover{b})
	conf, err := b.config()
	if err == nil {
		b.list, err = memberlist.Create(conf)
	}
	if err != nil {
		b.streams.Close()
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// config tunes memberlist for five probes a second. An unanswered suspicion removes a member after
// SuspicionMult × ProbeInterval × max(1, log10(n)): 0.6 s in a small group, twice that if few
// members confirm it. These times suit fast links and cannot change while memberlist runs. While
// probes fail, memberlist multiplies their interval by up to AwarenessMaxMultiplier. On slow links it
// still gives up members at times. So its verdict counts only once a member's streams are silent for
// the lease of the link, see Bus.tell.
func (b *Bus) config() (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	c.Name = b.opt.Self.ID
	c.Label = b.opt.Label
	c.Logger = log.New(b.mlog, "", 0)
	c.ProbeInterval, c.ProbeTimeout = 200*time.Millisecond, 150*time.Millisecond
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 2
	c.AwarenessMaxMultiplier = 8
	// The same interval as that of probes: both start together and share their wake-ups.
	c.GossipInterval, c.GossipToTheDeadTime = c.ProbeInterval, 10*time.Second
	c.PushPullInterval = 10 * time.Second
	c.TCPTimeout = 2 * time.Second
	c.EnableCompression = false
	d := delegate{b}
	c.Delegate, c.Events, c.Alive, c.Conflict, c.Ping = d, d, d, d, d
	if len(b.opt.Keys) > 0 {
		ring, err := memberlist.NewKeyring(b.opt.Keys, b.opt.Keys[0])
		if err != nil {
			return nil, err
		}
		b.ring, c.Keyring = ring, ring
	}
	host, port, err := hostPort(b.opt.Bind, DefaultPort)
	if err != nil {
		return nil, err
	}
	c.BindAddr, c.BindPort, c.AdvertisePort = host, port, port
	if b.opt.Advertise != "" {
		if c.AdvertiseAddr, c.AdvertisePort, err = hostPort(b.opt.Advertise, port); err != nil {
			return nil, err
		}
		if c.AdvertiseAddr, err = b.address(c.AdvertiseAddr); err != nil {
			return nil, err
		}
	}
	if err := b.fillMeta(); err != nil {
		return nil, err
	}
	return c, b.transport(c)
}

// transport binds the gossip port.
func (b *Bus) transport(c *memberlist.Config) error {
	many := func() { b.mlog.count(refusedMany) }
	if !b.opt.TCPOnly {
		t, err := newNetTransport(c.BindAddr, c.BindPort, c.Logger, many)
		if err != nil {
			return err
		}
		c.Transport, c.BindPort = t, t.GetAutoBindPort()
		if c.AdvertisePort == 0 {
			c.AdvertisePort = c.BindPort
		}
		return nil
	}
	t, err := newTCPTransport(net.JoinHostPort(c.BindAddr, strconv.Itoa(c.BindPort)), many)
	if err != nil {
		return err
	}
	c.Transport = t
	if b.opt.Advertise == "" {
		c.AdvertisePort = t.port()
	}
	c.DisableTcpPings = true
	return nil
}

// fillMeta builds this member's metadata. Streams are bound by then.
func (b *Bus) fillMeta() error {
	m := meta{Boot: b.opt.Self.Boot, Fingerprint: b.streams.Fingerprint(), Name: b.opt.Self.Name, Version: b.opt.Self.Version, Zone: b.opt.Self.Zone}
	m.StreamPort = uint16(b.streams.Addr().(*net.TCPAddr).Port)
	if b.opt.StreamAdvertise != "" {
		host, port, err := hostPort(b.opt.StreamAdvertise, int(m.StreamPort))
		if err != nil {
			return err
		}
		m.StreamHost, m.StreamPort = host, uint16(port)
	}
	b.meta.Store(&m)
	if n := len(m.append(nil)); n > maxMeta {
		return fmt.Errorf("gossip: metadata of %d bytes; shorten the names", n)
	}
	return nil
}

// address resolves a host to one IP address, which memberlist advertises.
func (b *Bus) address(host string) (string, error) {
	if net.ParseIP(host) != nil {
		return host, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addrs, err := b.opt.Resolver.LookupHost(ctx, host)
	if err != nil || len(addrs) == 0 {
		return "", fmt.Errorf("advertised address %q: %w", host, err)
	}
	return addrs[0], nil
}

// mark signals that membership changed.
func (b *Bus) mark() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// view returns the members of the roster.
func (b *Bus) view() (members []cluster.Member, peers []stream.Peer) {
	for _, n := range b.nodes.all() {
		m, err := parseMeta(n.Meta)
		if err != nil {
			continue
		}
		host := m.StreamHost
		if host == "" {
			host = n.Addr.String()
		}
		addr := net.JoinHostPort(host, strconv.Itoa(int(m.StreamPort)))
		members = append(members, cluster.Member{ID: n.Name, Name: m.Name, Boot: m.Boot, Addr: addr, Version: m.Version, Zone: m.Zone})
		peers = append(peers, stream.Peer{ID: n.Name, Boot: m.Boot, Addr: addr, Fingerprint: m.Fingerprint})
	}
	return members, peers
}

// Send queues a frame on streams.
func (b *Bus) Send(e cluster.Envelope) { b.streams.Send(e) }

// Leave announces to the other members that this one leaves. It gives up when ctx ends, and does
// nothing after Close.
func (b *Bus) Leave(ctx context.Context) error {
	b.leaving.Store(true)
	b.mu.Lock()
	closed := b.closed || b.list == nil
	b.mu.Unlock()
	if closed {
		return nil // memberlist panics when a list that was shut down is left
	}
	limit := 2 * time.Second
	if d, ok := ctx.Deadline(); ok {
		limit = max(time.Until(d), time.Millisecond)
	}
	if err := b.list.Leave(limit); err != nil {
		return fmt.Errorf("gossip: leaving: %w", err)
	}
	return nil
}

// Close stops everything.
func (b *Bus) Close() error {
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	if was || b.cancel == nil {
		return nil
	}
	b.cancel()
	err := b.list.Shutdown()
	b.streams.Close()
	b.wg.Wait()
	return err
}

// SetKeys changes the keys while the member runs. To rotate a key, give every member {old, new},
// then {new, old}, then {new}.
func (b *Bus) SetKeys(keys [][]byte) error {
	if len(keys) == 0 || b.ring == nil {
		return errors.New("gossip: encryption cannot be turned on or off while running")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	for _, k := range keys {
		if err := b.ring.AddKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	if err := b.ring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	for _, old := range b.ring.GetKeys() {
		if !containsKey(keys, old) {
			if err := b.ring.RemoveKey(old); err != nil {
				return fmt.Errorf("gossip: %w", err)
			}
		}
	}
	return nil
}

func containsKey(keys [][]byte, k []byte) bool {
	for _, o := range keys {
		if string(o) == string(k) {
			return true
		}
	}
	return false
}
