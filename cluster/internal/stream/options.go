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
	Label string // the group's; ends with different labels refuse each other
	Bind  string // host:port to listen on
	// Certificate is used instead of one made for this process; Roots must
	// then have signed those of the others too. Fingerprints are checked in
	// either case.
	Certificate *tls.Certificate
	Roots       *x509.CertPool
	// QueueBytes bounds what waits for one peer (8 MiB), of each class.
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

// Peer is another member as dialled.
type Peer struct {
	ID          string
	Boot        uint64
	Addr        string // host:port
	Fingerprint Fingerprint
}

// Handler is told of streams. It is the part of cluster.Handler that concerns
// them.
type Handler interface {
	Link(id string, up bool)
	Receive(from string, frame []byte)
}

// Reasons for which something was refused, as in cluster.BusStatus.
const (
	RefusedIdentity  = "identity"  // a certificate that is no member's, or another's
	RefusedPlaintext = "plaintext" // no TLS where TLS is spoken
	RefusedLabel     = "label"     // another group
	RefusedFrame     = "frame"     // garbage, or too large
)
