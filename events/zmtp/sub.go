package zmtp

import (
	"fmt"
	"net"
)

// SubOptions configure a listening SUB socket, to which publishers connect.
type SubOptions struct {
	Options // of each connection
	// Admit decides by the address of a peer, before reading any data; nil admits all.
	Admit func(net.Addr) bool
	// Left is called for each admitted peer when its connection has ended.
	Left     func(net.Addr)
	MaxConns int // at a time; default 4096, further peers are hung up on
	// Serve reads one connection after its handshake. When it returns, the connection is closed.
	Serve func(*Conn)
}

// Sub is a SUB socket that is bound: publishers connect to it.
type Sub struct {
	opt SubOptions
	l   *listener
}

// ListenSub binds a SUB socket to addr, "tcp://0.0.0.0:5557" or the like.
func ListenSub(addr string, opt SubOptions) (*Sub, error) {
	opt.Socket = SUB
	opt.Options = opt.withDefaults()
	s := &Sub{opt: opt}
	s.l = &listener{
		self: SUB, handshake: opt.Handshake, maxConns: opt.MaxConns, limits: opt.Limits, admit: opt.Admit, left: opt.Left,
		serve: func(nc net.Conn, r *reader) { opt.Serve(adopt(nc, r, PUB, opt.Options)) },
	}
	if err := listen(addr, s.l); err != nil {
		return nil, fmt.Errorf("zmtp: listen %s: %w", addr, err)
	}
	return s, nil
}

// Addr returns the bound address.
func (s *Sub) Addr() net.Addr { return s.l.ln.Addr() }

// Close hangs up on every peer and waits until none is served any more.
func (s *Sub) Close() error { return s.l.close() }
