package natsbus

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

func (b *Bus) connOptions() []nats.Option {
	opts := []nats.Option{
		nats.Name("grapevine " + b.opt.Self.ID), nats.NoEcho(), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // what could not be sent is stale later
		nats.Timeout(2 * time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.reconnected() }),
		nats.ErrorHandler(b.asyncError),
	}
	if b.opt.TLS != nil {
		opts = append(opts, nats.Secure(b.opt.TLS))
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

// disconnected takes every link down: nothing can be sent, to anybody.
func (b *Bus) disconnected(err error) {
	b.mu.Lock()
	if err != nil {
		b.lastErr = err
	}
	b.mu.Unlock()
	b.opt.Logger.Warn("connection to nats lost", "error", err)
	b.announce()
}

// announce hands the members on, and whether they can be reached. One call at
// a time, so that the latest word is the last.
func (b *Bus) announce() {
	b.view.Lock()
	defer b.view.Unlock()
	b.mu.Lock()
	members := b.roster.list()
	b.mu.Unlock()
	up := b.conn.IsConnected()
	b.deliver(func() {
		b.handler.Members(members)
		for _, m := range members {
			b.handler.Link(m.ID, up)
		}
	})
}

func (b *Bus) reconnected() {
	b.mu.Lock()
	b.lastErr = nil
	b.roster.refresh(time.Now())
	b.mu.Unlock()
	b.opt.Logger.Info("connected to nats", "url", b.conn.ConnectedUrlRedacted())
	b.announce()
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
