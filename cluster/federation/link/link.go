package link

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// Options configure a Link. Config and Replica are required.
type Options struct {
	Config     *Config
	Replica    string // name of this process, unique in its cluster
	Registerer prometheus.Registerer
	Log        *slog.Logger
	// Connections limits accepted connections. Half are for unauthenticated peers, the rest is
	// divided among the clusters. 0: 4,096.
	Connections int
	// Resolve resolves a name; default: the net package's resolver.
	Resolve func(ctx context.Context, host string) ([]string, error)
}

// Link is one replica's part in a federation.
type Link struct {
	o             Options
	identity      *identity // nil with NATS
	lis           net.Listener
	nats          *natsLink
	byCertificate map[string]string // cluster by name in its certificate
	certificate   map[string]string // the inverse
	greetings     greetings
	ofCluster     int              // connection limit per cluster
	paces         map[string]*pace // by cluster; immutable
	current       federation.Current
	ctx           context.Context
	cancel        context.CancelFunc
	wg            sync.WaitGroup
	metrics       *metrics

	mu      sync.Mutex
	core    *federation.Core
	conns   map[string]map[string]*conn // by cluster and target or link
	next    int                         // number of the next accepted connection
	dropped uint64                      // frames dropped because a queue was full
	refused map[string]uint64           // connections
	secrets secrets
	hot     map[hotKey]*filter.Hot
	logged  map[string]federation.State
	several map[string]bool // already logged
	meter   meter
}

// tick is the interval of the core's Tick.
const tick = 50 * time.Millisecond

// resolvePause is the time between DNS lookups.
const resolvePause = 10 * time.Second

// Open starts the link. If any part fails to start, all are stopped.
func Open(o Options) (*Link, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Resolve == nil {
		o.Resolve = net.DefaultResolver.LookupHost
	}
	o.Replica = cleanName(o.Replica)
	l := &Link{
		o: o, byCertificate: map[string]string{}, certificate: map[string]string{},
		conns: map[string]map[string]*conn{}, refused: map[string]uint64{}, hot: map[hotKey]*filter.Hot{},
		logged: map[string]federation.State{}, several: map[string]bool{}, paces: map[string]*pace{},
	}
	half := max(cmp.Or(o.Connections, maxConnections)/2, 1)
	l.greetings.most, l.ofCluster = half, max(min(maxOfCluster, half/max(len(o.Config.Peers), 1)), 1)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Link) open() (err error) {
	c := l.o.Config
	options, keys, err := l.coreOptions()
	if err != nil {
		return err
	}
	if l.core, err = federation.New(options, time.Now()); err != nil {
		return err
	}
	l.core.SetSecrets(l.secrets.use, l.secrets.also)
	l.publish(time.Now())
	if l.o.Registerer != nil {
		l.metrics = newMetrics(l)
		if err := l.o.Registerer.Register(l.metrics); err != nil {
			return fmt.Errorf("federation: %w", err)
		}
	}
	if c.NATS != nil {
		if l.nats, err = openNATS(l, keys); err != nil {
			return err
		}
		if err := l.nats.listen(); err != nil {
			return err
		}
	} else if !c.Standalone() {
		if err := l.openTLS(); err != nil {
			return err
		}
	}
	l.wg.Go(l.run)
	if c.SecretFile != "" {
		l.wg.Go(l.watchSecrets)
	}
	return nil
}

// openTLS listens and resolves the peers.
func (l *Link) openTLS() (err error) {
	c := l.o.Config
	for i := range c.Peers {
		p := &c.Peers[i]
		name := p.Certificate
		if name == "" {
			name = p.Name
		}
		if other := l.byCertificate[name]; other != "" {
			return fmt.Errorf("federation: clusters %s and %s have the same certificate name, %s", other, p.Name, name)
		}
		l.byCertificate[name], l.certificate[p.Name] = p.Name, name
	}
	if l.identity, err = openIdentity(c.CertFile, c.KeyFile, c.CAFile); err != nil {
		return err
	}
	if c.Listen != "" {
		if l.lis, err = net.Listen("tcp", c.Listen); err != nil {
			return fmt.Errorf("federation: %w", err)
		}
		l.wg.Go(func() { l.accept(l.ctx, l.lis) })
	}
	l.wg.Go(l.resolve)
	return nil
}

// coreOptions reads the secrets. keys are the pairs' keys, by cluster.
func (l *Link) coreOptions() (o federation.Options, keys map[string][]byte, err error) {
	c := l.o.Config
	o = federation.Options{Self: c.Cluster, Replica: l.o.Replica, Boot: boot(), Lease: c.Lease, Drain: c.Drain, Rotate: c.Rotate}
	s := &l.secrets
	if s.use, s.also, s.text, err = readSecrets(c.SecretFile); err != nil {
		return o, nil, err
	}
	o.Secret = s.use
	keys = map[string][]byte{}
	for i := range c.Peers {
		p := &c.Peers[i]
		secret, raw, err := readSecret(p.KeyFile)
		if err != nil {
			return o, nil, err
		}
		keys[p.Name] = raw
		l.paces[p.Name] = newPace(cmp.Or(p.Rate, federation.DefaultRate), time.Now())
		targets := p.Addresses
		if c.NATS != nil {
			targets = []string{anyReplica}
		}
		o.Peers = append(o.Peers, federation.PeerOptions{
			Name: p.Name, Targets: targets, Export: p.Export, Accept: p.Accept, Secret: secret, Rate: p.Rate, MaxFilter: p.MaxFilter,
		})
	}
	return o, keys, nil
}

// boot returns a number unique to this process.
func boot() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Addr returns the listen address, or nil without a listener.
func (l *Link) Addr() net.Addr {
	if l.lis == nil {
		return nil
	}
	return l.lis.Addr()
}

// View returns the state of the other clusters, never nil. It is cheap enough for every request.
func (l *Link) View() *federation.View { return l.current.Load() }

// SetExports replaces this cluster's exports. A pool that is no longer in the list is sent as
// draining and then withdrawn. Call it often, because loads are sent as of the last call.
func (l *Link) SetExports(list []federation.Export) {
	l.do(func(now time.Time) []federation.Send {
		l.core.SetExports(list, now)
		return nil
	})
}

// SetServed sets the pools for which this cluster's exports are complete (see
// [federation.Core.SetServed]).
func (l *Link) SetServed(pools []federation.PoolKey) {
	l.do(func(time.Time) []federation.Send {
		l.core.SetServed(pools)
		return nil
	})
}

// SetImports sets which exports of other clusters this cluster shows as objects. If it is never
// called, peers see that this cluster has no objects.
func (l *Link) SetImports(list []federation.Import) {
	l.do(func(time.Time) []federation.Send {
		l.core.SetImports(list)
		return nil
	})
}

// SetReady sets whether this replica may answer for its cluster, and if not, why.
func (l *Link) SetReady(ready bool, reason string) {
	l.do(func(time.Time) []federation.Send {
		l.core.SetReady(ready, reason)
		return nil
	})
}

// SetPrint sets the ID of this replica's group, which distinguishes it from other groups with the
// same cluster name. 0 means unknown, or no group.
func (l *Link) SetPrint(p uint64) {
	l.do(func(time.Time) []federation.Send {
		l.core.SetPrint(p)
		return nil
	})
}

// Leave directs all asking replicas to another replica.
func (l *Link) Leave() {
	l.do(func(now time.Time) []federation.Send { return l.core.Leave(now, nil) })
}

// Close stops everything and waits.
func (l *Link) Close() error {
	l.cancel()
	if l.lis != nil {
		_ = l.lis.Close()
	}
	if l.nats != nil {
		l.nats.close()
	}
	l.wg.Wait()
	if l.metrics != nil {
		l.o.Registerer.Unregister(l.metrics)
	}
	return nil
}

// do runs f with the core locked, sends the resulting messages and publishes the view.
func (l *Link) do(f func(now time.Time) []federation.Send) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, m := range f(now) {
		l.send(m, now)
	}
	l.publish(now)
}

// publish replaces the view if it changed. The caller holds l.mu, except at startup.
func (l *Link) publish(now time.Time) {
	v := l.core.View(now)
	if v == l.current.Load() {
		return
	}
	l.current.Store(v)
	for _, c := range v.Clusters {
		if c.Several && !l.several[c.Name] {
			l.o.Log.Error("cluster name is used by several replica groups", "cluster", c.Name, "reason", severalGroups)
		}
		l.several[c.Name] = c.Several
		if was, known := l.logged[c.Name]; known && was == c.State {
			continue
		}
		l.logged[c.Name] = c.State
		if c.State == federation.Live {
			l.o.Log.Info("cluster is reachable", "cluster", c.Name, "replica", c.Replica, "pools", len(c.Pools))
		} else {
			l.o.Log.Warn("cluster is not reachable", "cluster", c.Name, "state", c.State.String(), "reason", c.Reason)
		}
	}
}

func (l *Link) run() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
			l.do(func(now time.Time) []federation.Send {
				l.closeIdle(now)
				l.meter.measure(l.core.Traffic(), now)
				return l.core.Tick(now, nil)
			})
		}
	}
}

func (l *Link) receive(c *conn, frame []byte) {
	l.do(func(now time.Time) []federation.Send { return l.core.Receive(c.cluster, c.name, frame, now, nil) })
}

func (l *Link) broken(cluster, target, why string) {
	l.do(func(now time.Time) []federation.Send {
		l.core.Broken(cluster, target, why, now)
		return nil
	})
}

// send queues a message and dials if there is no connection. The caller holds l.mu.
func (l *Link) send(m federation.Send, now time.Time) {
	if l.nats != nil {
		l.nats.send(m)
		return
	}
	c := l.conns[m.Cluster][m.To]
	if c == nil {
		if l.ctx.Err() != nil || strings.HasPrefix(m.To, acceptedPrefix) {
			return // closed in the meantime
		}
		c = newConn(m.Cluster, m.To, now)
		l.add(c)
		certificate := l.certificate[m.Cluster]
		l.wg.Go(func() { l.dial(l.ctx, c, certificate) })
	}
	c.used = now
	select {
	case c.queue <- m.Frame:
	default:
		l.dropped++
	}
}

func (l *Link) add(c *conn) {
	if l.conns[c.cluster] == nil {
		l.conns[c.cluster] = map[string]*conn{}
	}
	l.conns[c.cluster][c.name] = c
}

// acceptedPrefix marks the names of accepted connections. No address starts with this character.
const acceptedPrefix = "#"

// accepted returns a new connection for a cluster, or nil if the cluster has too many.
func (l *Link) accepted(cluster string) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for name := range l.conns[cluster] {
		if strings.HasPrefix(name, acceptedPrefix) {
			n++
		}
	}
	if n >= l.ofCluster {
		return nil
	}
	l.next++
	c := newConn(cluster, acceptedPrefix+strconv.Itoa(l.next), time.Now())
	l.add(c)
	return c
}

func (l *Link) ended(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[c.cluster][c.name] == c {
		delete(l.conns[c.cluster], c.name)
	}
}

// closeIdle closes dialed connections that are no longer used. The caller holds l.mu.
func (l *Link) closeIdle(now time.Time) {
	for _, list := range l.conns {
		for name, c := range list {
			if !strings.HasPrefix(name, acceptedPrefix) && now.Sub(c.used) > idleTimeout {
				c.close()
			}
		}
	}
}

func (l *Link) refuse(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[reason]++
}

// resolve resolves names at startup and every resolvePause.
func (l *Link) resolve() {
	t := time.NewTicker(resolvePause)
	defer t.Stop()
	for {
		for i := range l.o.Config.Peers {
			p := &l.o.Config.Peers[i]
			if targets := l.targets(p.Addresses); len(targets) > 0 {
				l.do(func(now time.Time) []federation.Send {
					l.core.SetTargets(p.Name, targets, now)
					return nil
				})
			}
		}
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
		}
	}
}

// maxTargets is the maximum number of addresses per cluster.
const maxTargets = 64

// targets resolves a list of host:port to addresses. A name that does not resolve stays in the
// list, so that the error is shown.
func (l *Link) targets(addresses []string) (list []string) {
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil || net.ParseIP(host) != nil {
			list = append(list, a)
			continue
		}
		ctx, cancel := context.WithTimeout(l.ctx, dialTimeout)
		ips, err := l.o.Resolve(ctx, host)
		cancel()
		if err != nil {
			list = append(list, a)
			continue
		}
		for _, ip := range ips {
			list = append(list, net.JoinHostPort(ip, port))
		}
	}
	return list[:min(len(list), maxTargets)]
}
