package zmtp

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// patience is the time limit for expected events, long enough for a busy machine.
const patience = testkit.HangTimeout

// dial connects to addr for the length of the test.
func dial(tb testing.TB, addr string, opt Options) *Conn {
	tb.Helper()
	if opt.Handshake == 0 {
		opt.Handshake = patience
	}
	c, err := Dial(context.Background(), addr, opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func listenPub(tb testing.TB, opt PubOptions) *Pub {
	tb.Helper()
	if opt.Handshake == 0 {
		opt.Handshake = patience
	}
	p, err := ListenPub("tcp://127.0.0.1:0", opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

// recv reads one message and returns copies of its frames.
func recv(tb testing.TB, c *Conn) []string {
	tb.Helper()
	c.SetRecvDeadline(time.Now().Add(patience))
	var m Message
	if err := c.Recv(&m); err != nil {
		tb.Fatal(err)
	}
	var out []string
	for i := range m.Len() {
		out = append(out, string(m.Frame(i)))
	}
	return out
}

func TestPubSub(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, "tcp://"+pub.Addr().String(), Options{})
	if err := c.Subscribe("kv@10.0.0.1@"); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	big := string(bytes.Repeat([]byte("x"), 300_000))
	for _, m := range [][]string{{"kv@10.0.0.11@m", "no"}, {"kv@10.0.0.1@m", "", "yes"}, {"kv@10.0.0.1@m", big}} {
		var frames [][]byte
		for _, f := range m {
			frames = append(frames, []byte(f))
		}
		if err := pub.Send(frames...); err != nil {
			t.Fatal(err)
		}
	}
	if got := recv(t, c); len(got) != 3 || got[2] != "yes" {
		t.Errorf("first message %q", got)
	}
	if got := recv(t, c); len(got) != 2 || got[1] != big {
		t.Errorf("second message has %d frames", len(got))
	}
}

func TestGreetingAndReadyBytes(t *testing.T) {
	g := greeting()
	const wantGreeting = "ff00000000000000007f03014e554c4c" + "00000000000000000000000000000000" +
		"00000000000000000000000000000000" + "00000000000000000000000000000000"
	if got := hex.EncodeToString(g[:]); got != wantGreeting {
		t.Errorf("greeting %s", got)
	}
	if got := hex.EncodeToString(appendReady(nil, SUB)); got != "04190552454144590b536f636b65742d5479706500000003535542" {
		t.Errorf("READY %s", got)
	}
	if got := hex.EncodeToString(appendMessage(nil, [][]byte{[]byte("\x01kv@")})); got != "0004016b7640" {
		t.Errorf("subscription %s", got)
	}
	if got := hex.EncodeToString(appendCommand(nil, cmdPing, []byte{0, 0})); got != "04070450494e470000" {
		t.Errorf("PING %s", got)
	}
	if got := hex.EncodeToString(appendPong(nil, []byte{0, 0})); got != "040504504f4e47" {
		t.Errorf("PONG %s", got)
	}
}

func TestRouterDealer(t *testing.T) {
	router, err := ListenRouter("tcp://127.0.0.1:0", func(c *RouterConn, frames [][]byte) {
		for i := range 3 {
			if err := c.Send(frames[0], []byte(fmt.Sprint(i)), frames[1]); err != nil {
				t.Error(err)
			}
		}
	}, RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	c := dial(t, router.Addr().String(), Options{Socket: DEALER})
	if err := c.Send(nil, []byte("question")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if got := recv(t, c); len(got) != 3 || got[0] != "" || got[1] != fmt.Sprint(i) || got[2] != "question" {
			t.Fatalf("answer %d is %q", i, got)
		}
	}
}

func TestIPCAndIPv6(t *testing.T) {
	for _, addr := range []string{"ipc://" + filepath.Join(t.TempDir(), "s"), "tcp://[::1]:0"} {
		pub, err := ListenPub(addr, PubOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer pub.Close()
		if pub.Addr().Network() == "tcp" {
			addr = "tcp://" + pub.Addr().String()
		}
		c := dial(t, addr, Options{})
		if err := c.Subscribe(""); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
		_ = pub.Send([]byte("hello"))
		if got := recv(t, c); got[0] != "hello" {
			t.Errorf("%s: %q", addr, got)
		}
	}
}

func TestHostName(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	_, port, _ := net.SplitHostPort(pub.Addr().String())
	if c := dial(t, "tcp://localhost:"+port, Options{}); c.Peer() != PUB {
		t.Errorf("peer is %s", c.Peer())
	}
}

func TestWrongPartner(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	_, err := Dial(context.Background(), pub.Addr().String(), Options{Socket: DEALER})
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("a DEALER that meets a PUB gets %v", err)
	}
}

func TestHighWaterMarkDrops(t *testing.T) {
	pub := listenPub(t, PubOptions{HWM: 10})
	c := dial(t, pub.Addr().String(), Options{ReadBuffer: 64 << 10})
	if err := c.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	const sent = 2000
	payload := make([]byte, 16<<10)
	for i := range sent {
		payload[0], payload[1] = byte(i>>8), byte(i)
		_ = pub.Send(payload)
	}
	if pub.Dropped() == 0 {
		t.Fatal("nothing was dropped above the high-water mark")
	}
	var m Message
	got, last := uint64(0), -1
	for want := sent - pub.Dropped(); got < want; got++ {
		c.SetRecvDeadline(time.Now().Add(patience))
		if err := c.Recv(&m); err != nil {
			t.Fatalf("after %d of %d: %v", got, want, err)
		}
		seq := int(m.Frame(0)[0])<<8 | int(m.Frame(0)[1])
		if seq <= last {
			t.Fatalf("%d after %d", seq, last)
		}
		last = seq
	}
}

func TestLingerDrains(t *testing.T) {
	pub := listenPub(t, PubOptions{Linger: patience})
	c := dial(t, pub.Addr().String(), Options{})
	_ = c.Subscribe("")
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	for range 1000 {
		_ = pub.Send(make([]byte, 1000))
	}
	closed := make(chan error)
	go func() { closed <- pub.Close() }()
	var m Message
	n := 0
	for c.Recv(&m) == nil {
		n++
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if n != 1000 {
		t.Errorf("%d of 1000 messages came", n)
	}
}

func TestUnsubscribe(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{})
	_ = c.Subscribe("a")
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	if err := c.Send([]byte("\x00a")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the cancellation", func() bool { return pub.Subscribers() == 0 })
}

func TestHeartbeatFindsHalfOpenPeer(t *testing.T) {
	peer := fakePeer(t, func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }, PUB)
	c := dial(t, peer, Options{Heartbeat: 30 * time.Millisecond})
	var m Message
	start := time.Now()
	if err := c.Recv(&m); !errors.Is(err, ErrSilent) {
		t.Fatalf("Recv from a silent peer: %v", err)
	}
	if d := time.Since(start); d < 80*time.Millisecond {
		t.Errorf("gave up after %v, before two pings had time", d)
	}
}

// A publisher of ZMTP 3.0 does not support PING, so it gets none and may be silent.
func TestNoHeartbeatFor30(t *testing.T) {
	sent := make(chan byte, 1)
	peer := listenTCP(t, func(nc net.Conn) {
		g := greeting()
		g[signatureSize+1] = 0
		_, _ = nc.Write(g[:])
		_, _ = nc.Write(appendReady(nil, PUB))
		r := newReader(nc, Limits{}.withDefaults())
		if readGreeting(r) != nil {
			return
		}
		if _, err := readReady(r); err != nil {
			return
		}
		_ = nc.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if err := r.need(1); err == nil {
			sent <- r.buf[r.r]
		}
		_, _ = nc.Write(appendMessage(nil, [][]byte{[]byte("late")}))
		_, _ = io.Copy(io.Discard, nc)
	})
	c := dial(t, peer, Options{Heartbeat: 20 * time.Millisecond})
	if got := recv(t, c); got[0] != "late" {
		t.Errorf("got %q", got)
	}
	select {
	case b := <-sent:
		t.Errorf("sent it something that begins with %#x", b)
	default:
	}
}

// slowBeat leaves a peer more than a second to answer. During silence it is pinged more often than
// it may leave pings unanswered.
const (
	slowBeat = 700 * time.Millisecond
	silence  = 4 * slowBeat
)

func TestHeartbeatKeepsIdlePeer(t *testing.T) {
	t.Parallel()
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{Heartbeat: slowBeat})
	_ = c.Subscribe("")
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	time.AfterFunc(silence, func() { _ = pub.Send([]byte("late")) })
	if got := recv(t, c); got[0] != "late" {
		t.Errorf("got %q", got)
	}
}

func TestRecvDeadline(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{})
	c.SetRecvDeadline(time.Now().Add(20 * time.Millisecond))
	var m Message
	if err := c.Recv(&m); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Recv past its deadline: %v", err)
	}
}

func TestCloseWakesRecv(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{})
	time.AfterFunc(10*time.Millisecond, func() { _ = c.Close() })
	var m Message
	if err := c.Recv(&m); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv on a closed connection: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestPeerGone(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{})
	_ = pub.Close()
	var m Message
	// A peer that closes with bytes unread resets the connection.
	if err := c.Recv(&m); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Recv from a peer that left: %v", err)
	}
}

func TestDialCancelled(t *testing.T) {
	ln := listenTCP(t, func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, ln, Options{Handshake: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial of a peer that never greets: %v", err)
	}
}

func TestRecvAllocatesNothing(t *testing.T) {
	pub := listenPub(t, PubOptions{})
	c := dial(t, pub.Addr().String(), Options{})
	_ = c.Subscribe("")
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	const n = 2000
	for range n {
		_ = pub.Send([]byte("topic"), make([]byte, 8), make([]byte, 1000))
	}
	testkit.Await(t, "the publisher to have written", func() bool { return !pub.queued() })
	var m Message
	for range n / 2 {
		if err := c.Recv(&m); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(n/2-1, func() { _ = c.Recv(&m) }); got != 0 {
		t.Errorf("%v allocations per message", got)
	}
}
