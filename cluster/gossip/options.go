package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// Default ports.
const (
	DefaultPort       = 7946 // gossip, TCP and UDP
	DefaultStreamPort = 7947 // streams, TCP
)

// ErrUnreachable means that no other member can reach this member's advertised address.
var ErrUnreachable = errors.New("gossip: advertised address cannot be reached by the other members")

// Options configure a Bus. Self is required.
type Options struct {
	Self  cluster.Member
	Label string // of the group; members with another label are rejected
	// Keys encrypt gossip, 16, 24 or 32 bytes each. The first encrypts, all decrypt. Without keys
	// gossip is readable, and any client that reaches the port can join.
	Keys [][]byte

	Bind       string // host:port of gossip; default 0.0.0.0:7946
	StreamBind string // host:port of streams; default the host of Bind, port 7947
	// Advertise is the host, or host:port, at which other members reach gossip. The default is the
	// host of Bind, or this machine's first private address.
	Advertise string
	// StreamAdvertise is the same for streams; default the host of Advertise.
	StreamAdvertise string
	// Join lists members: host:port, IPv6 in brackets, port 7946 by default. A name stands for all
	// its addresses (for example a headless service).
	Join []string
	// Found returns the addresses (host:port) of further members, or an error if they are unknown.
	// Moved signals that Found may return new addresses. Both are nil if only Join lists members.
	Found func(context.Context) ([]string, error)
	Moved <-chan struct{}
	// Rejoin is how often names are resolved and unknown addresses joined (15 s). A single member
	// does so every second.
	Rejoin time.Duration
	// TCPOnly disables UDP, for networks that block it.
	TCPOnly bool

	// CertFile and KeyFile hold a certificate for streams that replaces the generated one. CAFile
	// holds the CAs that must have signed the other members' certificates. All are PEM. They are
	// checked for changes every CertCheck (5 s) and reloaded.
	CertFile, KeyFile, CAFile string
	CertCheck                 time.Duration
	QueueBytes                int
	// Limit bounds the connections of the listener for streams; nil means no bound.
	Limit func(net.Listener) net.Listener

	Resolver Resolver // nil means the system resolver
	Logger   *slog.Logger
}

// Resolver resolves a name to addresses. *net.Resolver implements it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

func (o Options) withDefaults() (Options, error) {
	if o.Self.ID == "" {
		return o, errors.New("gossip: Self.ID is empty")
	}
	if o.Bind == "" {
		o.Bind = net.JoinHostPort("0.0.0.0", strconv.Itoa(DefaultPort))
	}
	host, _, err := net.SplitHostPort(o.Bind)
	if err != nil {
		return o, fmt.Errorf("gossip: bind address: %w", err)
	}
	if o.StreamBind == "" {
		o.StreamBind = net.JoinHostPort(host, strconv.Itoa(DefaultStreamPort))
	}
	if (o.CertFile == "") != (o.KeyFile == "") || o.CAFile != "" && o.CertFile == "" {
		return o, errors.New("gossip: a certificate needs its key, and an authority needs a certificate")
	}
	if o.CertCheck <= 0 {
		o.CertCheck = 5 * time.Second
	}
	if o.Rejoin <= 0 {
		o.Rejoin = 15 * time.Second
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, checkKeys(o.Keys)
}

func checkKeys(keys [][]byte) error {
	for _, k := range keys {
		if n := len(k); n != 16 && n != 24 && n != 32 {
			return fmt.Errorf("gossip: key has %d bytes, want 16, 24 or 32", n)
		}
	}
	return nil
}

// hostPort splits an address. port is the default.
func hostPort(addr string, port int) (string, int, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		if ip := net.ParseIP(addr); ip != nil {
			return addr, port, nil
		}
		if host, p, err = net.SplitHostPort(addr + ":" + strconv.Itoa(port)); err != nil {
			return "", 0, fmt.Errorf("gossip: address %q: %w", addr, err)
		}
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("gossip: port of %q: %w", addr, err)
	}
	return host, int(n), nil
}
