package stream

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Fingerprint is the SHA-256 of a certificate in DER.
type Fingerprint [sha256.Size]byte

// Options configure Streams. Self and Bind are required.
type Options struct {
	Self  group.Member
	Label string // of the group; ends with different labels reject each other
	Bind  string // host:port to listen on
	// Certificate replaces the one made for this process. Roots must then have signed the
	// certificates of all members. Fingerprints are checked in either case.
	Certificate *tls.Certificate
	Roots       *x509.CertPool
	// QueueBytes bounds the frames that wait for one peer, per class (8 MiB).
	QueueBytes int
	// Limit bounds the listener's connections; nil means no bound.
	Limit func(net.Listener) net.Listener
	// DeadAfter is how long sent data may go unacknowledged before a
	// connection counts as broken (2 s).
	DeadAfter time.Duration
	Logger    *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.QueueBytes <= 0 {
		o.QueueBytes = 8 << 20
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Peer is another member to dial.
type Peer struct {
	ID          string
	Boot        uint64
	Addr        string // host:port
	Fingerprint Fingerprint
}

// Handler receives stream events. It is the part of cluster.Handler that concerns streams.
type Handler interface {
	Link(id string, up bool)
	Receive(from string, frame []byte)
}

// Reasons for a refusal, as in cluster.BusStatus.
const (
	RefusedIdentity  = "identity"  // a certificate of no member, or of another one
	RefusedPlaintext = "plaintext" // no TLS
	RefusedLabel     = "label"     // another group
	RefusedFrame     = "frame"     // malformed or too large
)
