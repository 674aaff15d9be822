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

// ErrUnreachable says that the advertised address does not lead to this member.
var ErrUnreachable = errors.New("gossip: advertised address cannot be reached by the other members")

// Options configure a Bus. Self is required.
type Options struct {
	Self  cluster.Member
	Label string // of the group; others are refused
	// Keys encrypt gossip, 16, 24 or 32 bytes each. The first one is used to
	// encrypt, all to decrypt. Without keys gossip is readable and anybody
	// who reaches the port can join.
	Keys [][]byte

	Bind       string // host:port of gossip; default 0.0.0.0:7946
	StreamBind string // host:port of streams; default the host of Bind, port 7947
	// Advertise is the host, or host:port, under which others reach gossip;
	// default the host of Bind, or this machine's first private address.
	Advertise string
	// StreamAdvertise is the same for streams; default the host of Advertise.
	StreamAdvertise string
	// Join names members: host:port, IPv6 in brackets, port 7946 when absent.
	// A name stands for all its addresses (a headless service, for example).
	Join []string
	// Found returns the addresses of further members, host:port, and what keeps it
	// from knowing them; Moved says that it has something new to tell. Nil where
	// nothing but Join names members.
	Found func(context.Context) ([]string, error)
	Moved <-chan struct{}
	// Rejoin is how often names are resolved anew and unknown addresses
	// joined (15 s); while alone, every second.
	Rejoin time.Duration
	// TCPOnly uses no UDP, for networks that do not let it through.
	TCPOnly bool

	// CertFile and KeyFile hold a certificate for streams instead of one made
	// at start, CAFile those who must have signed the others'; all PEM. They
	// are read anew when they change, looked at every CertCheck (5 s).
	CertFile, KeyFile, CAFile string
	CertCheck                 time.Duration
	QueueBytes                int
	// Limit bounds the connections of the listener for streams; nil means no bound.
	Limit func(net.Listener) net.Listener

	Resolver Resolver // nil means the system's
	Logger   *slog.Logger
}

// Resolver finds the addresses of a name. *net.Resolver is one.
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
			return fmt.Errorf("gossip: a key has %d bytes, not 16, 24 or 32", n)
		}
	}
	return nil
}

// hostPort splits an address whose port may be absent.
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
