package zmtp

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// startPeer runs peer.py, a libzmq socket, and returns it with the first line
// that it printed.
func startPeer(tb testing.TB, args ...string) (*parts.Script, string) {
	tb.Helper()
	p := parts.Start(tb, append([]string{"testdata/peer.py"}, args...)...)
	return p, p.Line()
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func TestSubFromLibzmqPub(t *testing.T) {
	const n = 4000
	p, endpoint := startPeer(t, "PUB", "bind", "tcp://127.0.0.1:*", fmt.Sprint(n))
	c := dial(t, endpoint, Options{Heartbeat: slowBeat})
	if err := c.Subscribe("kv@10.0.0.1@"); err != nil {
		t.Fatal(err)
	}
	var m Message
	next := func() {
		t.Helper()
		c.SetRecvDeadline(time.Now().Add(patience))
		if err := c.Recv(&m); err != nil {
			t.Fatal(err)
		}
	}
	next() // a probe: the subscription is in force
	p.Send("go")
	for next(); m.Len() == 2; next() {
	}
	for i := uint64(0); i < n; i += 2 {
		if i > 0 {
			next()
		}
		if m.Len() != 3 || binary.BigEndian.Uint64(m.Frame(1)) != i || len(m.Frame(2)) != int(i%2000) {
			t.Fatalf("message %d: %d frames, number %x, %d bytes", i, m.Len(), m.Frame(1), len(m.Frame(2)))
		}
	}
}

func TestHeartbeatAgainstLibzmq(t *testing.T) {
	t.Parallel()
	_, endpoint := startPeer(t, "PUB", "bind", "tcp://127.0.0.1:*", "0")
	c := dial(t, endpoint, Options{Heartbeat: slowBeat})
	var m Message
	c.SetRecvDeadline(time.Now().Add(silence))
	if err := c.Recv(&m); !os.IsTimeout(err) {
		t.Errorf("an idle libzmq publisher was given up: %v", err)
	}
}

func TestDealerToLibzmqRouter(t *testing.T) {
	const n = 900 // below the ROUTER's default high-water mark
	_, endpoint := startPeer(t, "ROUTER", "bind", "tcp://127.0.0.1:*", fmt.Sprint(n))
	c := dial(t, endpoint, Options{Socket: DEALER})
	for round := range 2 {
		if err := c.Send(nil, number(5)); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(n) {
			if got := recv(t, c); len(got) != 4 || got[0] != "" || got[1] != "topic" || got[2] != string(number(5+i)) {
				t.Fatalf("round %d, reply %d is %q", round, i, got)
			}
		}
		if got := recv(t, c); len(got) != 4 || got[2] != "\xff\xff\xff\xff\xff\xff\xff\xff" || got[3] != "" {
			t.Fatalf("end is %q", got)
		}
	}
}

func TestLibzmqSubFromPub(t *testing.T) {
	t.Parallel()
	const n = 2000
	pub := listenPub(t, PubOptions{})
	p, _ := startPeer(t, "SUB", "connect", "tcp://"+pub.Addr().String(), fmt.Sprint(n/2))
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	time.Sleep(3500 * time.Millisecond) // the peer would have gone if its heartbeats were not answered
	for i := range n {
		topic := []string{"kv@10.0.0.1@m", "kv@10.0.0.11@m"}[i%2]
		if err := pub.Send([]byte(topic), number(uint64(i)), make([]byte, i%700)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < n; i += 2 {
		if got, want := p.Line(), fmt.Sprintf("kv@10.0.0.1@m %d %d", i, i%700); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// replay answers like an engine's replay socket: three batches and the end.
func replay(c *RouterConn, frames [][]byte) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		return
	}
	from := binary.BigEndian.Uint64(frames[1])
	for i := range uint64(3) {
		_ = c.Send(nil, []byte("topic"), number(from+i), []byte("payload"))
	}
	_ = c.Send(nil, nil, number(1<<64-1), nil)
}

func TestLibzmqClientsOfRouter(t *testing.T) {
	router, err := ListenRouter("tcp://127.0.0.1:0", replay, RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	endpoint := "tcp://" + router.Addr().String()
	p, _ := startPeer(t, "DEALER", "connect", endpoint)
	for _, want := range []string{"4 7 7", "4 8 7", "4 9 7", "4 18446744073709551615 0"} {
		if got := p.Line(); got != want {
			t.Fatalf("DEALER got %q, want %q", got, want)
		}
	}
	p, _ = startPeer(t, "REQ", "connect", endpoint)
	if got := p.Line(); got != "3 9 7" {
		t.Fatalf("REQ got %q", got)
	}
}

func TestGoZeromqBothWays(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()

	theirs := zmq4.NewPub(ctx)
	defer theirs.Close()
	if err := theirs.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c := dial(t, "tcp://"+theirs.Addr().String(), Options{})
	_ = c.Subscribe("top")
	got := make(chan []string)
	go func() { got <- recv(t, c) }()
	func() {
		for {
			if err := theirs.Send(zmq4.NewMsgFrom([]byte("topic"), number(3), []byte("payload"))); err != nil {
				t.Error(err)
			}
			select {
			case m := <-got:
				if len(m) != 3 || m[2] != "payload" {
					t.Errorf("from go-zeromq's PUB: %q", m)
				}
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()

	pub := listenPub(t, PubOptions{})
	sub := zmq4.NewSub(ctx)
	defer sub.Close()
	if err := sub.Dial("tcp://" + pub.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, "top"); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "go-zeromq's subscription", func() bool { return pub.Subscribers() == 1 })
	_ = pub.Send([]byte("other"), []byte("no"))
	_ = pub.Send([]byte("topic"), []byte("yes"))
	if m, err := sub.Recv(); err != nil || strings.Join([]string{string(m.Frames[0]), string(m.Frames[1])}, " ") != "topic yes" {
		t.Errorf("go-zeromq's SUB got %v, %v", m, err)
	}

	router, err := ListenRouter("tcp://127.0.0.1:0", replay, RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	dealer := zmq4.NewDealer(ctx)
	defer dealer.Close()
	if err := dealer.Dial("tcp://" + router.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, number(1))); err != nil {
		t.Fatal(err)
	}
	if m, err := dealer.Recv(); err != nil || len(m.Frames) != 4 {
		t.Errorf("go-zeromq's DEALER got %v, %v", m, err)
	}
}
