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
	Group  string   // members of other groups are not seen (default)
	// Keys seal messages, 16, 24 or 32 bytes each: the first is used to seal,
	// all to open.
	Keys [][]byte

	TLS *tls.Config // nil: as the URL says
	// CAFile, CertFile and KeyFile are paths of PEM files: who signed the
	// servers' certificates, and what this member shows them. They are read
	// anew for each connection, like the two below.
	CAFile, CertFile, KeyFile string

	Credentials string // path of a .creds file
	NKey        string // path of a seed file
	User        string
	Password    string
	Token       string

	// Heartbeat is the time between heartbeats (250 ms). A member that is
	// silent for four of them is gone.
	Heartbeat time.Duration
	// QueueBytes bounds what waits to be published, of each class (16 MiB).
	QueueBytes int
	Logger     *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Self.ID == "" || len(o.Self.ID) > maxField:
		return o, errors.New("natsbus: Self.ID is empty or too long")
	case len(o.URLs) == 0:
		return o, errors.New("natsbus: no server is named")
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
			return o, fmt.Errorf("natsbus: a key has %d bytes, not 16, 24 or 32", n)
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
