package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// tcpTransport is a memberlist.Transport without UDP. Packets travel on separate connections, which
// start with a marker byte. Each packet is preceded by its length in two bytes. Like UDP, it drops
// packets rather than wait.
type tcpTransport struct {
	lis     net.Listener
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	refused func() // counts connections above the limit
	wg      sync.WaitGroup

	mu     sync.Mutex
	outs   map[string]*packetConn
	ins    map[net.Conn]bool
	closed bool
}

// packetConns limits the accepted connections: a packet connection from each member, plus streams.
const packetConns = 512

const (
	packetMark = 'P'
	streamMark = 'S'

	packetIdle  = 30 * time.Second
	packetWrite = time.Second
	maxPacket   = 1<<16 - 1
)

// packetConn sends packets to one address. One goroutine owns the connection.
type packetConn struct{ queue chan []byte }

func newTCPTransport(bind string, refused func()) (*tcpTransport, error) {
	lis, err := net.Listen("tcp", bind)
	if err != nil {
		return nil, err
	}
	t := &tcpTransport{
		lis: lis, packets: make(chan *memberlist.Packet, 256), streams: make(chan net.Conn),
		done: make(chan struct{}), refused: refused, outs: map[string]*packetConn{}, ins: map[net.Conn]bool{},
	}
	t.wg.Go(t.accept)
	return t, nil
}

func (t *tcpTransport) port() int { return t.lis.Addr().(*net.TCPAddr).Port }

// FinalAdvertiseAddr returns the configured address, or a private address of this machine.
func (t *tcpTransport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		parsed := net.ParseIP(ip)
		if parsed == nil {
			return nil, 0, fmt.Errorf("gossip: advertised address %q is not an IP address", ip)
		}
		return parsed, port, nil
	}
	own := t.lis.Addr().(*net.TCPAddr)
	if !own.IP.IsUnspecified() {
		return own.IP, own.Port, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, 0, err
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsPrivate() {
			return n.IP, own.Port, nil
		}
	}
	return nil, 0, errors.New("gossip: this machine has no private address; set an advertised address")
}

// WriteTo sends or drops a packet.
func (t *tcpTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	if len(b) > maxPacket {
		return time.Time{}, fmt.Errorf("gossip: packet of %d bytes is too large", len(b))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return time.Time{}, net.ErrClosed
	}
	out := t.outs[addr]
	if out == nil {
		out = &packetConn{queue: make(chan []byte, 64)}
		t.outs[addr] = out
		t.wg.Go(func() { t.send(addr, out) })
	}
	p := binary.BigEndian.AppendUint16(make([]byte, 0, len(b)+2), uint16(len(b)))
	select {
	case out.queue <- append(p, b...):
	default: // dropped, as with UDP
	}
	return time.Now(), nil
}

// send owns the connection to an address until it fails or is idle for too long.
func (t *tcpTransport) send(addr string, out *packetConn) {
	defer func() {
		t.mu.Lock()
		delete(t.outs, addr)
		t.mu.Unlock()
	}()
	conn, err := net.DialTimeout("tcp", addr, packetWrite)
	if err != nil {
		return
	}
	defer conn.Close()
	idle := time.NewTimer(packetIdle)
	defer idle.Stop()
	b := []byte{packetMark}
	for {
		select {
		case <-t.done:
			return
		case <-idle.C:
			return
		case p := <-out.queue:
			b = append(b, p...)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(packetWrite))
		if _, err := conn.Write(b); err != nil {
			return
		}
		b = b[:0]
		idle.Reset(packetIdle)
	}
}

func (t *tcpTransport) accept() {
	for {
		conn, err := t.lis.Accept()
		if err != nil {
			select {
			case <-t.done:
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		if !t.track(conn) {
			continue
		}
		t.wg.Go(func() { t.serve(conn) })
	}
}

// track registers an incoming connection, so that Shutdown can close it. It closes connections
// above the limit.
func (t *tcpTransport) track(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.ins) >= packetConns {
		if !t.closed {
			t.refused()
		}
		_ = conn.Close()
		return false
	}
	t.ins[conn] = true
	return true
}

func (t *tcpTransport) untrack(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ins, conn)
}

// serve reads packets from an incoming connection, or passes it on as a stream.
func (t *tcpTransport) serve(conn net.Conn) {
	handed := false
	defer func() {
		if !handed {
			t.untrack(conn)
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(silentFor))
	var mark [1]byte
	if _, err := io.ReadFull(conn, mark[:]); err != nil {
		_ = conn.Close()
		return
	}
	switch mark[0] {
	case streamMark:
		_ = conn.SetReadDeadline(time.Time{})
		select {
		case t.streams <- &boundedConn{Conn: conn, left: maxStreamBytes, closed: func() { t.untrack(conn) }}:
			handed = true
		case <-t.done:
			_ = conn.Close()
		}
	case packetMark:
		t.receive(conn)
	default:
		_ = conn.Close()
	}
}

// receive reads packets from a connection until it ends or is silent for too long.
func (t *tcpTransport) receive(conn net.Conn) {
	defer conn.Close()
	_ = readPackets(conn, func() { _ = conn.SetReadDeadline(time.Now().Add(2 * packetIdle)) }, func(b []byte) bool {
		select {
		case t.packets <- &memberlist.Packet{Buf: b, From: conn.RemoteAddr(), Timestamp: time.Now()}:
			return true
		case <-t.done:
			return false
		}
	})
}

// readPackets passes the packets of a connection to take, until take returns false or the
// connection ends. It calls before ahead of each packet.
func readPackets(conn io.Reader, before func(), take func([]byte) bool) error {
	r := bufio.NewReader(conn)
	var size [2]byte
	for {
		before()
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return err
		}
		b, err := budget.ReadAnnounced(r, int(binary.BigEndian.Uint16(size[:])))
		if err != nil {
			return err
		}
		if !take(b) {
			return nil
		}
	}
}

// PacketCh returns incoming packets.
func (t *tcpTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns incoming streams.
func (t *tcpTransport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream.
func (t *tcpTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := conn.Write([]byte{streamMark}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, conn.SetWriteDeadline(time.Time{})
}

// Shutdown closes every connection and waits.
func (t *tcpTransport) Shutdown() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	for conn := range t.ins { // including memberlist's
		_ = conn.Close()
	}
	t.mu.Unlock()
	close(t.done)
	err := t.lis.Close()
	t.wg.Wait()
	return err
}
