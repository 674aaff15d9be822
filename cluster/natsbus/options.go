package natsbus

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// Options configure a Bus. Self and URLs are required.
type Options struct {
	Self   cluster.Member
	URLs   []string // of NATS servers, nats:// or tls://
	Prefix string   // of all subjects (grapevine)
	Group  string   // members of other groups are ignored (default)
	// Keys seal messages, 16, 24 or 32 bytes each. The first seals, all open.
	Keys [][]byte

	TLS *tls.Config // nil: determined by the URL
	// CAFile, CertFile and KeyFile are PEM files: the CAs of the servers' certificates, and this
	// member's client certificate. They are read for each connection, like the two below.
	CAFile, CertFile, KeyFile string

	Credentials string // path of a .creds file
	NKey        string // path of a seed file
	User        string
	Password    string
	Token       string

	// Heartbeat is the time between heartbeats (250 ms). A member that misses four is removed.
	Heartbeat time.Duration
	// QueueBytes limits the messages queued for publishing, per class (16 MiB).
	QueueBytes int
	Logger     *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Self.ID == "" || len(o.Self.ID) > maxField:
		return o, errors.New("natsbus: Self.ID is empty or too long")
	case len(o.URLs) == 0:
		return o, errors.New("natsbus: URLs is empty")
	}
	if o.Prefix == "" {
		o.Prefix = "grapevine"
	}
	if o.Group == "" {
		o.Group = "default"
	}
	for _, token := range append(strings.Split(o.Prefix, "."), o.Group) {
		if token == "" || strings.ContainsAny(token, " .*>\t\r\n") {
			return o, fmt.Errorf("natsbus: %q cannot be part of a subject", token)
		}
	}
	for _, k := range o.Keys {
		if n := len(k); n != 16 && n != 24 && n != 32 {
			return o, fmt.Errorf("natsbus: key has %d bytes, want 16, 24 or 32", n)
		}
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 250 * time.Millisecond
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
