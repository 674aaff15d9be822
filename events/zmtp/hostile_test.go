package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// listenTCP serves each connection with f until the test ends and returns the
// address.
func listenTCP(tb testing.TB, f func(net.Conn)) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, nc)
			mu.Unlock()
			wg.Go(func() { f(nc); _ = nc.Close() })
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, nc := range conns {
			_ = nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

// fakePeer greets like a socket of type self and then runs f.
func fakePeer(tb testing.TB, f func(net.Conn), self SocketType) string {
	return listenTCP(tb, func(nc net.Conn) {
		g := greeting()
		_, _ = nc.Write(append(g[:], appendReady(nil, self)...))
		f(nc)
		// Closing with unread bytes would reset the connection and lose data in transit.
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	})
}

// TestHostilePeer sends each kind of nonsense after a good handshake: it must
// cost an error, not memory and not the process.
func TestHostilePeer(t *testing.T) {
	huge := binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<60)
	for name, c := range map[string]struct {
		send []byte
		want error
	}{
		"frame of 2^60 bytes":   {huge, ErrTooLarge},
		"command of 2^60 bytes": {binary.BigEndian.AppendUint64([]byte{flagLong | flagCommand}, 1<<60), ErrTooLarge},
		"frame of 2^64-1 bytes": {binary.BigEndian.AppendUint64([]byte{flagLong | flagMore}, 1<<64-1), ErrTooLarge},
		"announced, never sent": {append(binary.BigEndian.AppendUint64([]byte{flagLong}, 60<<20), 1, 2, 3), io.ErrUnexpectedEOF},
		"endless frames":        {bytes.Repeat([]byte{flagMore, 0}, 1000), ErrTooLarge},
		"reserved flags":        {[]byte{0x80, 0}, ErrProtocol},
		"command with more":     {[]byte{flagCommand | flagMore, 0}, ErrProtocol},
		"empty command":         {[]byte{flagCommand, 0}, ErrProtocol},
		"command name too long": {[]byte{flagCommand, 2, 200, 'x'}, ErrProtocol},
		"ping without TTL":      {appendCommand(nil, cmdPing, nil), ErrProtocol},
		"error command":         {appendCommand(nil, cmdError, []byte("\x03no!")), ErrProtocol},
		"half a header":         {[]byte{flagLong, 0, 0}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			addr := fakePeer(t, func(nc net.Conn) { _, _ = nc.Write(c.send) }, PUB)
			conn := dial(t, addr, Options{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var m Message
			if err := conn.Recv(&m); !errors.Is(err, c.want) {
				t.Errorf("Recv: %v, want %v", err, c.want)
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
				t.Errorf("%d bytes allocated", grown)
			}
		})
	}
}

func TestHostileGreeting(t *testing.T) {
	g := greeting()
	v2 := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1}, make([]byte, 60)...)
	curve := bytes.Clone(g[:])
	copy(curve[mechanismAt:], "CURVE")
	for name, send := range map[string][]byte{
		"garbage":             bytes.Repeat([]byte("HTTP/1.1 400\r\n"), 100),
		"old protocol":        v2,
		"other mechanism":     curve,
		"message for READY":   append(bytes.Clone(g[:]), 0, 1, 'x'),
		"huge READY":          binary.BigEndian.AppendUint64(append(bytes.Clone(g[:]), flagCommand|flagLong), 1<<60),
		"READY without type":  append(bytes.Clone(g[:]), appendCommand(nil, cmdReady, nil)...),
		"READY cut short":     append(bytes.Clone(g[:]), appendCommand(nil, cmdReady, []byte("\x0bSocket-Type\x00\x00\xff\xffPUB"))...),
		"READY of a stranger": append(bytes.Clone(g[:]), appendReady(nil, "PAIR")...),
	} {
		t.Run(name, func(t *testing.T) {
			addr := listenTCP(t, func(nc net.Conn) { _, _ = nc.Write(send); _, _ = io.Copy(io.Discard, nc) })
			if _, err := Dial(context.Background(), addr, Options{Handshake: patience}); !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("Dial: %v", err)
			}
		})
	}
}

// TestEndlessGreeting drips a greeting one byte at a time: the deadline is for
// the whole handshake, not for each byte.
func TestEndlessGreeting(t *testing.T) {
	g := greeting()
	addr := listenTCP(t, func(nc net.Conn) {
		for i := range g {
			if _, err := nc.Write(g[i : i+1]); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	if _, err := Dial(context.Background(), addr, Options{Handshake: 100 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial: %v", err)
	}
}

// TestServersSurviveGarbage throws random bytes, with and without a good
// greeting, at both servers and then uses them.
func TestServersSurviveGarbage(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	router, err := ListenRouter("127.0.0.1:0", func(c *RouterConn, f [][]byte) { _ = c.Send(f...) },
		RouterOptions{Handshake: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	rng := rand.New(rand.NewSource(1))
	g := greeting()
	for i := range 60 {
		junk := make([]byte, 1+rng.Intn(500))
		rng.Read(junk)
		for addr, self := range map[string]SocketType{pub.Addr().String(): SUB, router.Addr().String(): DEALER} {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_, _ = nc.Write(append(g[:], appendReady(nil, self)...))
			}
			_, _ = nc.Write(junk)
			_ = nc.Close()
		}
	}
	sub := dial(t, pub.Addr().String(), Options{})
	_ = sub.Subscribe("")
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	_ = pub.Send([]byte("alive"))
	if got := recv(t, sub); got[0] != "alive" {
		t.Errorf("got %q", got)
	}
	d := dial(t, router.Addr().String(), Options{Socket: DEALER})
	_ = d.Send(nil, []byte("alive"))
	if got := recv(t, d); len(got) != 2 || got[1] != "alive" {
		t.Errorf("got %q", got)
	}
}

// TestTooManySubscriptions bounds the state that a subscriber can create at a PUB.
func TestTooManySubscriptions(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{})
	for range maxTopics + 1 {
		if err := c.Subscribe("x"); err != nil {
			break
		}
	}
	var m Message
	c.SetRecvDeadline(time.Now().Add(patience))
	if err := c.Recv(&m); err == nil {
		t.Error("the connection survived")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(appendMessage(nil, [][]byte{[]byte("topic"), make([]byte, 8), []byte("payload")}))
	f.Add(appendCommand(nil, cmdPing, []byte{0, 0, 'c'}))
	f.Add(binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<60))
	f.Add(appendReady(nil, SUB))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		r := newReader(bytes.NewReader(b), Limits{Frame: 1 << 16, Message: 1 << 16, Frames: 8})
		var m Message
		for r.next(&m, func(body []byte) error { _, _, err := splitCommand(body); return err }) == nil {
			if m.Size() > len(b) {
				t.Fatalf("%d bytes of frames from %d of input", m.Size(), len(b))
			}
			again := appendMessage(nil, m.AppendFrames(nil))
			var m2 Message
			r2 := newReader(bytes.NewReader(again), Limits{}.withDefaults())
			if err := r2.next(&m2, nil); err != nil || m2.Len() != m.Len() || !bytes.Equal(m2.buf, m.buf) {
				t.Fatalf("read back: %v", err)
			}
		}
		_, _ = readReady(newReader(bytes.NewReader(b), Limits{}.withDefaults()))
	})
}
