package zmtp

import "errors"

// SocketType is a ZMTP socket type as it appears in the READY command.
type SocketType string

// Socket types that this package implements, or that its peers have.
const (
	SUB    SocketType = "SUB"
	XSUB   SocketType = "XSUB"
	PUB    SocketType = "PUB"
	XPUB   SocketType = "XPUB"
	DEALER SocketType = "DEALER"
	REQ    SocketType = "REQ"
	REP    SocketType = "REP"
	ROUTER SocketType = "ROUTER"
)

// accepts reports whether a socket of type t may talk to a peer of type p.
func (t SocketType) accepts(p SocketType) bool {
	switch t {
	case SUB:
		return p == PUB || p == XPUB
	case PUB:
		return p == SUB || p == XSUB
	case DEALER:
		return p == ROUTER || p == REP || p == DEALER
	case ROUTER:
		return p == DEALER || p == REQ || p == ROUTER
	default:
		return false
	}
}

// Errors of the protocol. Recv and Dial wrap these with the received data.
var (
	ErrProtocol = errors.New("zmtp: protocol error")
	ErrTooLarge = errors.New("zmtp: frame or message over the limit")
	ErrSilent   = errors.New("zmtp: peer answers no ping")
	ErrClosed   = errors.New("zmtp: closed")
)

// Frame flags (RFC 23).
const (
	flagMore     = 0x01
	flagLong     = 0x02
	flagCommand  = 0x04
	flagReserved = 0xf8
)

// Greeting layout: 10 bytes of signature, 2 of version, 20 of mechanism, the
// as-server octet, 31 of filler.
const (
	greetingSize  = 64
	signatureSize = 10
	mechanismAt   = 12
	mechanismSize = 20
	mechanismNull = "NULL"
	versionMajor  = 3
	versionMinor  = 1 // the first with PING and SUBSCRIBE
)

// Command names and the one property that matters here.
const (
	cmdReady     = "READY"
	cmdError     = "ERROR"
	cmdPing      = "PING"
	cmdPong      = "PONG"
	cmdSubscribe = "SUBSCRIBE"
	cmdCancel    = "CANCEL"
	propSocket   = "Socket-Type"
	propIdentity = "Identity"
)

// First byte of a subscription message (RFC 23; a peer of version 3.1 may use
// the commands instead).
const (
	subCancel = 0x00
	subAdd    = 0x01
)

const (
	maxCommand     = 8 << 10 // commands are small; READY carries an identity of at most 255 bytes
	maxPingContext = 16      // RFC 37
)

// greeting returns the 64 bytes that open a NULL connection.
func greeting() [greetingSize]byte {
	var g [greetingSize]byte
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, versionMajor, versionMinor
	copy(g[mechanismAt:], mechanismNull)
	return g
}
