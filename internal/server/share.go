package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/monitor"
	"github.com/grapevine-epp/grapevine/picker/programs/admission"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// ClusterOptions configures how this replica finds the others and shares state.
type ClusterOptions struct {
	Mode  string // none, gossip, nats; default none
	Share string // assignment of event streams: auto, mesh, partitioned; default auto
	// Keys are the group's encryption keys, 16, 24 or 32 bytes each. The first encrypts; all are
	// accepted, for rotation.
	Keys [][]byte

	Bind, StreamBind           string   // gossip
	Advertise, StreamAdvertise string   // gossip
	Join                       []string // gossip: host:port, or names that resolve to several
	// gossip: addresses of further members from another source, and a signal when they change; nil
	// for none.
	Found func(context.Context) ([]string, error) `json:"-"`
	Moved <-chan struct{}                         `json:"-"`
	// MissingRights, if not nil, returns the missing rules of the source of Found. Safe for concurrent use.
	MissingRights func() []string `json:"-"`
	Label         string          // gossip: label of the group; nats: name of the group
	TCPOnly       bool            // gossip

	NATS        []string // nats: URLs
	Credentials string   // nats: .creds file
	NKey        string   // nats: seed file

	// PEM files, reloaded when they change. gossip: the certificate for streams and the CA of the
	// others; nats: the client certificate and the servers' CA.
	CertFile, KeyFile, CAFile string
}

func (c *ClusterOptions) enabled() bool { return c.Mode != "" && c.Mode != "none" }

// share parses Share.
func (c *ClusterOptions) share() (cluster.Share, error) {
	if c.Share == "" {
		return cluster.ShareAuto, nil
	}
	if v, ok := cluster.ParseShare(c.Share); ok {
		return v, nil
	}
	return 0, fmt.Errorf("%w, not %q", errShare, c.Share)
}

var errShare = errors.New("server: share must be auto, mesh or partitioned")

var errMode = errors.New("server: cluster mode must be none, gossip or nats")

// bus creates the transport to the other replicas. limit bounds a listener's connections.
func (c *ClusterOptions) bus(self cluster.Member, limit func(net.Listener) net.Listener, log *slog.Logger) (cluster.Bus, error) {
	switch c.Mode {
	case "", "none":
		return cluster.None{}, nil
	case "gossip":
		return gossip.New(gossip.Options{
			Self: self, Label: c.Label, Keys: c.Keys, Bind: c.Bind, StreamBind: c.StreamBind, Advertise: c.Advertise,
			StreamAdvertise: c.StreamAdvertise, Join: c.Join, Found: c.Found, Moved: c.Moved, TCPOnly: c.TCPOnly,
			CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, Limit: limit, Logger: log,
		})
	case "nats":
		return natsbus.New(natsbus.Options{
			Self: self, URLs: c.NATS, Group: c.Label, Keys: c.Keys, Credentials: c.Credentials, NKey: c.NKey,
			CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, Logger: log,
		})
	}
	return nil, errMode
}

var errKeys = errors.New("server: the group's keys cannot be changed while running")

// SetKeys changes the group's keys at run time: the first encrypts, all decrypt. To replace a key,
// set {old, new} on every replica, then {new, old}, then {new}.
func (s *Server) SetKeys(keys [][]byte) error {
	bus, ok := s.bus.(interface{ SetKeys([][]byte) error })
	if !ok {
		return errKeys
	}
	return bus.SetKeys(keys)
}

// openNode creates this replica's cluster node. It is opened once all shared states are registered.
func (s *Server) openNode(context.Context) (err error) {
	c := &s.o.Cluster
	mode, err := c.share()
	if err != nil {
		return err
	}
	self := cluster.NewMember(s.o.Name, s.o.Version)
	self.Zone = s.o.Zone
	if sh := s.o.Shared; sh != nil {
		self = sh.Self
		if s.bus = sh.Bus; s.bus == nil {
			s.bus = cluster.None{}
		}
	} else if s.bus, err = c.bus(self, s.limitReplicas, s.o.Log); err != nil {
		return err
	}
	s.setup = facts.NewSetup(facts.SetupOptions{Secret: secretPrint(s.o.Secret, s.hasher), Models: s.files.modelsInUse, Log: s.o.Log})
	tuning := share.Tuning()
	tuning.Relay = c.Mode == "gossip" // NATS servers distribute messages across zones themselves
	s.node = cluster.New(cluster.Options{
		Self: self, Bus: s.bus, Share: mode, Logger: s.o.Log, Watch: s.dog.Loop("cluster"), Tuning: tuning, ConfigMismatch: s.setup.Mismatch,
		NotShared: func() string {
			if s.share == nil {
				return ""
			}
			return s.share.NotShared()
		},
	})
	return s.registry.Register(s.node)
}

// openShared registers the states that the group shares. Without a group, the same parts run and send
// nothing.
func (s *Server) openShared(ctx context.Context) (err error) {
	group := facts.Of(s.node)
	s.setup.Join(group)
	if s.grouped && s.o.Secret == "" {
		s.seeds = facts.NewSeeds(facts.SeedOptions{
			Own: s.ownSeed, Now: time.Now, Log: s.o.Log, Registry: s.registry,
			Settled: func() bool { return s.node.Phase() != cluster.Settling },
			Older:   func() bool { return s.node.GaugeAbsent(facts.StateSeed) },
			Use: func(seed block.Seed) {
				s.share.Rekey(func() uint64 {
					s.hasher.Reseed(seed)
					return uint64(s.hasher.Root(block.Scope{}))
				})
			},
		})
		s.seeds.Join(group)
	}
	if err := s.openLists(group); err != nil {
		return err
	}
	if s.health, err = openHealth(healthOptions{
		Pool: s.pool, Node: s.node, Grouped: s.grouped, Scheme: cmp.Or(s.config.current().Metrics.Scheme, "http"), Client: s.engines.client(monitor.NewClient()),
		Refresh: s.scrape.RefreshSoon, ProbeIdle: s.o.ProbeIdle, Registry: s.registry, Log: s.o.Log, Watch: s.dog.Loop("engine health"), Background: s.wg.Go,
	}); err != nil {
		return err
	}
	s.share = share.OpenIndex(ctx, share.IndexOptions{
		Node: s.node, Grouped: s.grouped, Secret: s.seeds == nil, Seeded: func() bool { return s.seeds == nil || s.seeds.Has() }, Hasher: s.hasher, Index: s.index, Pool: s.pool, Source: s.source,
		Page: s.scrape.Refresh, Conflict: s.setup.Conflict, Ready: s.files.ready, EngineRestarted: s.pool.Renew, Log: s.o.Log, Watch: s.dog.Loop("event streams").Within(longWork), Registry: s.registry,
	})
	s.xds = newXDSShare(xdsShareOptions{
		XDS: s.o.XDS, TLS: s.o.TLS, BodyLimit: s.o.MaxBody, Pool: s.pool, Group: group, Listeners: s.listeners, Log: s.o.Log,
		Ready: func() bool { return s.condition.ready() }, Settled: s.stage.settled.Load,
	})
	if s.gate, err = gate.New(gate.Options{Pool: s.pool, Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("queue")}); err != nil {
		return err
	}
	if s.programs, err = admission.New(admission.Options{Pool: s.pool, Next: s.gate, Registerer: s.registry}); err != nil {
		return err
	}
	s.shareLoad(group)
	if s.peerFiles != nil {
		s.peerFiles.join(s.node, func(p facts.FilePage) ([]byte, bool) {
			return s.files.source.Read(p.Repo, p.Commit, p.Name, p.Offset, facts.MaxPage)
		}, s.o.Log)
	}
	return s.listenForEvents()
}

// limitReplicas bounds the connections of a listener for the other replicas.
func (s *Server) limitReplicas(l net.Listener) net.Listener {
	return s.listeners.Limit("replicas", 8, l)
}

// openLists creates the store of the endpoint list. Only a source that is not a file of this machine
// needs it.
func (s *Server) openLists(group facts.Group) (err error) {
	o := listOptions{Config: s.config, Log: s.o.Log}
	if s.o.Source != nil {
		o.Folder = s.o.StateDir
		if s.grouped {
			o.Group = facts.NewLists(group, time.Now, s.o.Log)
		}
	}
	s.lists, err = openLists(o)
	return err
}

// shareLoad registers what replicas know of load, queues, costs and prompts.
func (s *Server) shareLoad(group facts.Group) {
	s.load = facts.NewLoad(facts.LoadOptions{Group: group, Pool: s.pool, Now: monotime.Now, Log: s.o.Log, Watch: s.dog.Loop("load counts"),
		Remains: func(ep *endpoint.Endpoint) { s.scrape.RefreshSoon(ep) }})
	s.queues = facts.NewQueues(group, facts.Queue{
		Changes: s.gate.Changes, Receive: s.gate.Receive, PeerLeft: s.gate.PeerLeft, Answers: s.gate.Answers, Answered: s.gate.Answered,
		Dirty: s.gate.Dirty(), Watch: s.dog.Loop("queue shares"),
	}, s.o.Log)
	s.costs = facts.NewCosts(facts.CostOptions{Group: group, Pool: s.pool, Log: s.o.Log})
	s.hints = facts.NewHints(facts.HintOptions{
		Group: group, Pool: s.pool, Sessions: s.sessions, Record: s.approx.Record, Blame: &s.blame, Now: monotime.Now, Registry: s.registry,
	})
}

// source returns the event source of an endpoint.
func (s *Server) source(ep *endpoint.Endpoint) events.EndpointSource {
	return events.EndpointSource{ID: ep.ID, Name: ep.Address, Model: s.models.EventModel(ep), Streams: s.finder.Streams(ep), Pod: ep.Name}
}

// eventParts: publishers may use one in this many of the process's connections.
const eventParts = 4

// listenForEvents opens the listeners for event publishers, if flags or configuration name some.
func (s *Server) listenForEvents() error {
	in := events.Inbound{Listen: s.o.EventsListen, Allow: s.o.EventsAllow, Connections: s.listeners.Part(eventParts)}
	p := s.config.current().Producer
	if at := p.EventsListen; at != "" && len(in.Listen) == 0 {
		in.Listen, in.Topic = []string{at}, p.Events.Topic
	}
	if s.finder.Inbound = len(in.Listen); s.finder.Inbound == 0 {
		return nil
	}
	if s.grouped {
		s.o.Log.Warn("publishers connect to this replica only: with several replicas, let the engines bind instead")
	}
	return s.share.Listen(in)
}

// joinGroup opens the node. In a group, load, learned constants and decisions are shared from then
// on.
func (s *Server) joinGroup(ctx context.Context) error {
	if s.grouped { // without a group, requests need not wake the senders
		s.sessions.OnBind(s.hints.Bound)
		s.sessions.OnMerge(func(b sessions.Binding) { s.programs.Seen(b.Session) })
		s.blame.OnVerdict(s.hints.VerdictReached)
		s.pool.Splits().OnOutcome(s.hints.SplitEnded)
		s.pool.LoadTracker().OnChange(s.load.Changed)
	}
	if err := s.node.Open(ctx); err != nil {
		return fmt.Errorf("server: cluster: %w", err)
	}
	if !s.grouped {
		return nil
	}
	if !s.files.searching() {
		s.setup.Publish()
	}
	if s.seeds != nil {
		s.wg.Go(func() { s.seeds.Run(ctx) })
	}
	reports, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopReports = stop
	s.wg.Go(func() { s.load.Run(reports) })
	s.wg.Go(func() { s.queues.Run(reports) })
	s.wg.Go(func() { s.costs.Run(reports) })
	s.wg.Go(func() { s.hints.Run(reports) })
	s.wg.Go(func() { s.decisions.peers.Run(reports) })
	if s.peerFiles != nil {
		s.peerFiles.joined = time.Now()
		s.wg.Go(func() { s.peerFiles.files.Run(ctx) })
	}
	return nil
}
