package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
)

// ClusterOptions say how this replica finds the others and shares with them.
type ClusterOptions struct {
	Mode  string // none, gossip, nats; default none
	Share string // who reads which event stream: auto, mesh, partitioned; default auto
	// Key is the group's secret: it encrypts what is sent. 16, 24 or 32 bytes;
	// further keys are accepted, for rotation.
	Keys [][]byte

	Bind, StreamBind           string   // gossip
	Advertise, StreamAdvertise string   // gossip
	Join                       []string // gossip: host:port, or names that stand for several
	Label                      string   // gossip: of the group; nats: the group's name
	TCPOnly                    bool     // gossip

	NATS        []string // nats: URLs
	NATSServe   string   // nats: host:port of a server in this process; "" for none
	Credentials string   // nats: .creds file
	NKey        string   // nats: seed file

	// PEM files, read again when they change. gossip: the certificate of the
	// streams and who signs the others'; nats: the one shown to servers and
	// who signs theirs.
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

// bus builds the way to the other replicas.
func (c *ClusterOptions) bus(s *Server, self cluster.Member) (cluster.Bus, error) {
	switch c.Mode {
	case "", "none":
		return cluster.None{}, nil
	case "gossip":
		return gossip.New(gossip.Options{
			Self: self, Label: c.Label, Keys: c.Keys, Bind: c.Bind, StreamBind: c.StreamBind, Advertise: c.Advertise,
			StreamAdvertise: c.StreamAdvertise, Join: c.Join, TCPOnly: c.TCPOnly,
			CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, Logger: s.o.Log,
		})
	case "nats":
		urls, err := s.serveNATS()
		if err != nil {
			return nil, err
		}
		return natsbus.New(natsbus.Options{
			Self: self, URLs: urls, Group: c.Label, Keys: c.Keys, Credentials: c.Credentials, NKey: c.NKey,
			CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, Logger: s.o.Log,
		})
	}
	return nil, errMode
}

// serveNATS starts the server that is to run in this process, if any, and
// returns the URLs of all servers, that one first.
func (s *Server) serveNATS() (urls []string, err error) {
	c := &s.o.Cluster
	if c.NATSServe == "" {
		return c.NATS, nil
	}
	if s.nats, err = embedded.Start(embedded.Options{Name: s.o.Name, Bind: c.NATSServe}); err != nil {
		return nil, fmt.Errorf("server: nats: %w", err)
	}
	s.o.Log.Info("nats server listening", "url", s.nats.URL())
	return append([]string{s.nats.URL()}, c.NATS...), nil
}

var errKeys = errors.New("server: the group's keys cannot be changed while running")

// SetKeys changes the group's keys while the replica runs: the first encrypts,
// all decrypt. To replace a key, give every replica {old, new}, then {new, old},
// then {new}.
func (s *Server) SetKeys(keys [][]byte) error {
	bus, ok := s.bus.(interface{ SetKeys([][]byte) error })
	if !ok {
		return errKeys
	}
	return bus.SetKeys(keys)
}

// tuning suits sources of 100,000 blocks and more: a snapshot of one takes its
// time, so few are asked for at once, and not again before it can have been made.
var tuning = cluster.Tuning{Loads: 4, AskTimeout: time.Second}

// openCluster joins the group and shares the precise index, the in-flight
// book, learned constants, speculative entries and session bindings.
func (s *Server) openCluster(ctx context.Context, m *matcher) error {
	self := cluster.NewMember(s.o.Name, s.o.Version)
	bus, err := s.o.Cluster.bus(s, self)
	if err != nil {
		return err
	}
	s.bus = bus
	share, err := s.o.Cluster.share()
	if err != nil {
		return err
	}
	s.node = cluster.New(cluster.Options{
		Self: self, Bus: bus, Share: share, Logger: s.o.Log, Tuning: tuning,
		Trouble: func() (string, string) { return s.setup.trouble() },
	})
	if err := s.registry.Register(s.node); err != nil {
		return err
	}
	s.share.join(ctx)
	s.setup = newSetupShare(s)
	s.xds = newXDSShare(s)
	s.load = newLoadShare(s)
	s.costs = newCostShare(s)
	hints := newHintShare(s)
	grouped := s.o.Cluster.enabled()
	if grouped { // alone, no request need wake what would tell the others
		m.recorded = hints.recorded
		s.scheduler.Sessions().OnBind(hints.bound)
		s.pool.Book().OnChange(s.load.changed)
	}
	if err := s.node.Open(ctx); err != nil {
		return fmt.Errorf("server: cluster: %w", err)
	}
	if !grouped {
		return nil
	}
	s.setup.tell()
	s.wg.Go(func() { s.load.run(ctx) })
	s.wg.Go(func() { s.costs.run(ctx) })
	s.wg.Go(func() { hints.run(ctx) })
	return nil
}

// wire reads values of gauges and hints: varints and floats. The first
// error sticks.
type wire struct {
	b   []byte
	bad bool
}

var errWire = errors.New("server: malformed value from a peer")

func (w *wire) int() int64 {
	v, n := binary.Varint(w.b)
	if n <= 0 {
		w.bad = true
		return 0
	}
	w.b = w.b[n:]
	return v
}

// count is int for values that cannot be negative.
func (w *wire) count() int64 {
	v := w.int()
	if v < 0 {
		w.bad = true
		return 0
	}
	return v
}

func (w *wire) float() float64 {
	if len(w.b) < 8 {
		w.bad = true
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(w.b))
	w.b = w.b[8:]
	if math.IsNaN(v) || math.IsInf(v, 0) {
		w.bad = true
		return 0
	}
	return v
}

// fixed reads eight bytes.
func (w *wire) fixed() uint64 {
	if len(w.b) < 8 {
		w.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(w.b)
	w.b = w.b[8:]
	return v
}

// text reads a string of at most limit bytes.
func (w *wire) text(limit int) string {
	n := w.count()
	if w.bad || n > int64(limit) || n > int64(len(w.b)) {
		w.bad = true
		return ""
	}
	s := string(w.b[:n])
	w.b = w.b[n:]
	return s
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

// maxAddress bounds the endpoint names that peers send.
const maxAddress = 128

// maxAge bounds how old a peer may say that something is: clocks are not compared, ages are.
const maxAge = time.Hour

func (w *wire) age() time.Duration {
	d := time.Duration(w.count())
	return min(d, maxAge)
}
