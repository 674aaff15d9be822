package natsbus

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// needPayload is the message size that a server must accept: a full gauge plus overhead. It equals
// the NATS default of 1 MiB.
const needPayload = group.MaxGauge + 64<<10

// connect connects once. If no server is reachable, it keeps trying in the background.
func (b *Bus) connect() (*nats.Conn, error) {
	urls := strings.Join(b.opt.URLs, ",")
	conn, err := nats.Connect(urls, b.connOptions()...)
	if err == nil {
		return conn, nil
	}
	if !outOfReach(err) {
		return nil, fmt.Errorf("natsbus: %s: %w", redacted(b.opt.URLs), err)
	}
	b.opt.Logger.Warn("nats is unreachable, retrying", "urls", redacted(b.opt.URLs), "error", err)
	conn, err = nats.Connect(urls, append(b.connOptions(), nats.RetryOnFailedConnect(true))...)
	if err != nil {
		return nil, fmt.Errorf("natsbus: %s: %w", redacted(b.opt.URLs), err)
	}
	return conn, nil
}

// outOfReach reports whether a failed connection may succeed later with the same configuration.
func outOfReach(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return false // a TLS alert: the server rejects our certificate
	}
	var netErr net.Error
	if errors.As(err, &netErr) {
		return true
	}
	for _, e := range []error{
		nats.ErrNoServers, nats.ErrTimeout, nats.ErrStaleConnection, nats.ErrDisconnected, nats.ErrConnectionClosed,
		nats.ErrMaxConnectionsExceeded, nats.ErrMaxAccountConnectionsExceeded, io.EOF, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// redacted joins URLs without their passwords.
func redacted(urls []string) string {
	var out []string
	for _, u := range urls {
		scheme, rest, ok := strings.Cut(u, "://")
		if !ok { // the client assumes nats://
			scheme, rest = "nats", u
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			u = scheme + "://" + rest[at+1:]
		}
		out = append(out, u)
	}
	return strings.Join(out, ", ")
}

func (b *Bus) connOptions() []nats.Option {
	opts := []nats.Option{
		nats.Name("grapevine " + b.opt.Self.ID), nats.NoEcho(),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // unsent messages would be stale later
		// The client holds its lock during a write. A server that accepts nothing would block the status of
		// the replica until the end of this time.
		nats.FlusherTimeout(2 * time.Second),
		nats.Timeout(2 * time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ReconnectHandler(b.reconnected),
		nats.ErrorHandler(b.asyncError),
	}
	if b.opt.TLS != nil {
		opts = append(opts, nats.Secure(b.opt.TLS))
	}
	if b.opt.CAFile != "" {
		opts = append(opts, nats.RootCAs(b.opt.CAFile))
	}
	if b.opt.CertFile != "" {
		opts = append(opts, nats.ClientCert(b.opt.CertFile, b.opt.KeyFile))
	}
	if b.opt.Credentials != "" {
		opts = append(opts, nats.UserCredentials(b.opt.Credentials))
	}
	if b.opt.NKey != "" {
		opts = append(opts, func(o *nats.Options) error {
			key, err := nats.NkeyOptionFromSeed(b.opt.NKey)
			if err != nil {
				return err
			}
			return key(o)
		})
	}
	if b.opt.User != "" {
		opts = append(opts, nats.UserInfo(b.opt.User, b.opt.Password))
	}
	if b.opt.Token != "" {
		opts = append(opts, nats.Token(b.opt.Token))
	}
	return opts
}

// disconnected marks every link down. Like reconnected, it may be called before connect has
// returned.
func (b *Bus) disconnected(conn *nats.Conn, err error) {
	b.mu.Lock()
	if err != nil {
		b.lastErr = err
	}
	b.mu.Unlock()
	if !conn.IsClosed() { // otherwise Close caused it
		b.opt.Logger.Warn("connection to nats lost", "error", err)
	}
	b.announce(conn)
}

// announce passes the members and the state of their links to the handler. Calls are serialized, so
// that the latest state comes last.
func (b *Bus) announce(conn *nats.Conn) {
	b.view.Lock()
	defer b.view.Unlock()
	b.mu.Lock()
	members := b.roster.list()
	b.mu.Unlock()
	was, up := b.linked, conn.IsConnected()
	b.linked = nil
	for _, m := range members {
		b.linked = append(b.linked, m.ID)
	}
	b.deliver(func() {
		b.handler.Members(members)
		for _, id := range was {
			if !slices.Contains(b.linked, id) {
				b.handler.Link(id, false)
			}
		}
		for _, id := range b.linked {
			b.handler.Link(id, up)
		}
	})
}

func (b *Bus) reconnected(conn *nats.Conn) {
	b.mu.Lock()
	b.lastErr, b.lostErr = nil, nil
	b.roster.refresh(time.Now())
	b.mu.Unlock()
	b.opt.Logger.Info("connected to nats", "url", conn.ConnectedUrlRedacted())
	b.announce(conn)
	select {
	case b.beatNow <- struct{}{}:
	default:
	}
}

func (b *Bus) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.slow++
		return
	}
	b.lastErr = err
}
