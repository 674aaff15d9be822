package zmtp

import (
	"net"
	"strings"
	"time"
)

// Limits bounds the memory that one peer can use.
type Limits struct {
	Frame   int // bytes of one frame; default 64 MiB
	Message int // bytes of all frames of one message; default 64 MiB
	Frames  int // frames of one message; default 8
}

func (l Limits) withDefaults() Limits {
	if l.Frame <= 0 {
		l.Frame = 64 << 20
	}
	if l.Message <= 0 {
		l.Message = 64 << 20
	}
	if l.Frames <= 0 {
		l.Frames = 8
	}
	return l
}

// Options configure a client connection.
type Options struct {
	Socket SocketType // SUB (default) or DEALER
	Limits Limits

	// Handshake bounds connecting, greeting and READY together; default 3 s.
	Handshake time.Duration
	// Heartbeat is the silence after which a PING is sent; two unanswered ones end the connection.
	// Default 10 s; negative disables it. ZMTP 3.0 peers are never sent a PING.
	Heartbeat time.Duration
	// AlignPing moves the time of a PING, by less than Heartbeat, so that an idle process sends the PINGs
	// of its connections together; nil leaves it.
	AlignPing func(time.Time) time.Time
	// Write bounds one Send, for peers that do not read; default 5 s.
	Write time.Duration
	// ReadBuffer is the socket's receive buffer (SO_RCVBUF); 0 means the system default.
	ReadBuffer int
}

func (o Options) withDefaults() Options {
	if o.Socket == "" {
		o.Socket = SUB
	}
	o.Limits = o.Limits.withDefaults()
	if o.Handshake <= 0 {
		o.Handshake = 3 * time.Second
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 2 * time.Second
	}
	if o.Write <= 0 {
		o.Write = 5 * time.Second
	}
	return o
}

// keepAlive finds dead peers below ZMTP, also during a handshake or a write.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// splitEndpoint turns "tcp://host:port", "ipc://path" or "host:port" into
// arguments of net.Dial and net.Listen. "*" as a host means every interface.
func splitEndpoint(endpoint string) (network, addr string) {
	if path, ok := strings.CutPrefix(endpoint, "ipc://"); ok {
		return "unix", path
	}
	addr = strings.TrimPrefix(endpoint, "tcp://")
	if port, ok := strings.CutPrefix(addr, "*:"); ok {
		addr = ":" + port
	}
	if host, ok := strings.CutSuffix(addr, ":*"); ok {
		addr = host + ":0"
	}
	return "tcp", addr
}
