package events

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// openInbound returns a reader of two endpoints at one address, whose engines dial in,
// and where.
func openInbound(t *testing.T, o Inbound, replay string) (r *reader, at string) {
	t.Helper()
	opt := testOptions()
	opt.CoolDown, opt.ReplayIdle = 200*time.Millisecond, 3*time.Second
	r = openReader(t, opt)
	for range testSource.Rank + 1 {
		o.Listen = append(o.Listen, "tcp://127.0.0.1:0")
	}
	if err := r.Listen(o); err != nil {
		t.Fatal(err)
	}
	r.Set(dialling(replay))
	all := r.Inbound()
	return r, "tcp://" + all[len(all)-1].String()
}

// dialling returns two endpoints at one address, whose engines dial in.
func dialling(replay string) []EndpointSource {
	stream := Stream{Rank: testSource.Rank, Events: InboundFrom("127.0.0.1"), Replay: replay}
	other := stream
	other.Replay = ""
	return []EndpointSource{
		{ID: testSource.Endpoint, Name: "127.0.0.1:8001", Pod: "pod-a", Model: testModel, Streams: []Stream{stream}},
		{ID: testSource.Endpoint + 1, Name: "127.0.0.1:8002", Pod: "pod-b", Model: testModel, Streams: []Stream{other}},
	}
}

func startDialling(t *testing.T, to, replay, topic string, before, seed int) *vllm {
	t.Helper()
	v := &vllm{parts.Start(t, "testdata/engine.py", "dial "+to, replay, "map", strconv.Itoa(before), strconv.Itoa(seed), topic), t}
	if got := v.Line(); got != "ready" {
		t.Fatalf("the engine did not start: %q", got)
	}
	return v
}

// refused waits until the given number of connections or messages is refused for a reason.
func (r *reader) refused(t *testing.T, reason string, n float64) {
	t.Helper()
	testkit.Await(t, "refused as "+reason, func() bool { return testutil.ToFloat64(r.metrics.refused.WithLabelValues(reason)) >= n })
}

// dialIn connects to a listening SUB as a publisher, from an address of this machine.
func dialIn(t *testing.T, to string) *zmtp.Conn {
	t.Helper()
	c, err := zmtp.Dial(t.Context(), to, zmtp.Options{Socket: zmtp.PUB, Handshake: testkit.HangTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func seqOf(n byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, n} }

// TestDialIn: a libzmq publisher that connects is followed like one that is bound. Its earlier
// batches are replayed, and its successor replaces it.
func TestDialIn(t *testing.T) {
	replay := "tcp://" + parts.FreeAddress(t)
	r, at := openInbound(t, Inbound{Topic: "kv@"}, replay)
	if why := r.Problem(testSource.Endpoint); !strings.Contains(why, "has connected") {
		t.Errorf("before anybody dialled in: %q", why)
	}
	if s := r.Knowledge(testSource.Endpoint).State; s != knowledge.Approximate {
		t.Errorf("before anybody dialled in: %v", s)
	}
	v := startDialling(t, at, replay, "kv@127.0.0.1:8001@some/model", 200, 1)
	// The first message names the publisher. It cannot send this message before the subscription
	// has arrived.
	testkit.Await(t, "it is heard", func() bool {
		v.do("step", 1)
		return r.Knowledge(testSource.Endpoint).State != knowledge.Approximate
	})
	v.truth(r)
	v.do("slow", 300)
	v.truth(r)
	if why := r.Problem(testSource.Endpoint); why != "" {
		t.Errorf("trouble: %s", why)
	}
	if s := r.Knowledge(testSource.Endpoint + 1).State; s != knowledge.Approximate {
		t.Errorf("the other endpoint is %v", s)
	}
	v.Stop()
	v = startDialling(t, at, replay, "kv@pod-a@some/model", 20, 2)
	testkit.Await(t, "the restarted engine is heard", func() bool {
		v.do("step", 1)
		p, _ := r.Position(testSource)
		return p.Seq < 200 && r.Knowledge(testSource.Endpoint).State.Followed()
	})
	v.truth(r)
}

// TestDialInFromOtherAddresses: connections from other addresses are closed unread, and an endpoint's
// publisher can send events only for that endpoint.
func TestDialInFromOtherAddresses(t *testing.T) {
	r, at := openInbound(t, Inbound{}, "")
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	nc, err := from.Dial("tcp", strings.TrimPrefix(at, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, nc); n > 0 {
		t.Errorf("a stranger was sent %d bytes, %v", n, err)
	}
	_ = nc.Close()
	r.refused(t, refusedUnknown, 1)

	c := dialIn(t, at)
	for i, f := range []struct {
		topic  string
		reason string
	}{{"kv@10.0.0.1:8001@m", refusedTopic}, {"kv-events", refusedAmbiguous}, {"kv@127.0.0.1@m", refusedAmbiguous}, {"kv@", refusedAmbiguous}, {"kv@127.0.0.1:8001@" + strings.Repeat("m", maxTopic), refusedTopic}} {
		before := testutil.ToFloat64(r.metrics.refused.WithLabelValues(f.reason))
		if err := c.Send([]byte(f.topic), seqOf(byte(i)), []byte{0x90}); err != nil {
			t.Fatal(err)
		}
		r.refused(t, f.reason, before+1)
	}
	for _, id := range []block.EndpointID{testSource.Endpoint, testSource.Endpoint + 1} {
		if p, _ := r.Position(block.Source{Endpoint: id, Rank: testSource.Rank}); p.Seq != 0 {
			t.Errorf("endpoint %d: %+v", id, p)
		}
	}
	// Many topics on one connection, and many connections.
	malformed := testutil.ToFloat64(r.metrics.refused.WithLabelValues(refusedTopic))
	for i := range 1000 {
		if err := c.Send([]byte("kv@pod-a@"+strconv.Itoa(i)+strings.Repeat("x", maxTopic/2)), seqOf(0), []byte{0x90}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Send([]byte("kv@nobody@m"), seqOf(0), []byte{0x90}); err != nil {
		t.Fatal(err)
	}
	r.refused(t, refusedTopic, malformed+1) // the others were read before it
	r.inbound.mu.Lock()
	for c := range r.inbound.conns {
		if len(c.denied) > 4 {
			t.Errorf("names kept: %q", c.denied)
		}
	}
	r.inbound.mu.Unlock()
	for range inboundPerHost - 1 {
		dialIn(t, at)
	}
	if _, err := zmtp.Dial(t.Context(), at, zmtp.Options{Socket: zmtp.PUB, Handshake: testkit.HangTimeout}); err == nil {
		t.Error("one connection too many was taken")
	}
	r.refused(t, refusedCrowded, 1)
}

// TestDialInBeforeTheEndpointIsKnown: a publisher that names its endpoint before the endpoint is in
// the pool is followed as soon as it is, even without further messages.
func TestDialInBeforeTheEndpointIsKnown(t *testing.T) {
	r, at := openInbound(t, Inbound{}, "")
	r.Set(dialling("")[1:])
	c := dialIn(t, at)
	before := testutil.ToFloat64(r.metrics.refused.WithLabelValues(refusedTopic))
	if err := c.Send([]byte("kv@pod-a@m"), seqOf(0), []byte{0x90}); err != nil {
		t.Fatal(err)
	}
	r.refused(t, refusedTopic, before+1)
	r.Set(dialling(""))
	testkit.Await(t, "it is listened to", func() bool { return !strings.Contains(r.Problem(testSource.Endpoint), "has connected") })
}

// TestDialInNewestSpeaks: of two connections for one endpoint the newer is followed, and when it
// ends the endpoint's state is unknown.
func TestDialInNewestSpeaks(t *testing.T) {
	r, at := openInbound(t, Inbound{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, "")
	position := func(want uint64) {
		t.Helper()
		testkit.Await(t, fmt.Sprint("position ", want), func() bool {
			p, _ := r.Position(testSource)
			return p.Seq == want
		})
	}
	// A batch without events.
	batch := []byte{0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90}
	topic := []byte("kv@pod-a@m")
	one, two := dialIn(t, at), dialIn(t, at)
	send := func(c *zmtp.Conn, seq byte) {
		t.Helper()
		if err := c.Send(topic, seqOf(seq), batch); err != nil {
			t.Fatal(err)
		}
	}
	send(one, 0)
	position(1)
	send(two, 1)
	position(2)
	send(one, 7) // no reader
	r.refused(t, refusedReplaced, 1)
	send(two, 2)
	position(3)
	_ = two.Close()
	testkit.Await(t, "its publisher hung up", func() bool { return strings.Contains(r.Problem(testSource.Endpoint), "hung up") })
	send(one, 3) // there is no other connection
	position(4)
	_ = one.Close()
	testkit.Await(t, "its publisher hung up", func() bool { return strings.Contains(r.Problem(testSource.Endpoint), "hung up") })
	if !slices.Contains([]knowledge.State{knowledge.CatchingUp, knowledge.Approximate}, r.Knowledge(testSource.Endpoint).State) {
		t.Errorf("%+v", r.Knowledge(testSource.Endpoint))
	}
}

// TestForwardersLeaveRoom: addresses outside of the pool may use half of the connections, and a
// single address a quarter. Addresses of the pool can still connect. Closed connections are
// available again.
func TestForwardersLeaveRoom(t *testing.T) {
	in := openReader(t, testOptions()).inbound
	in.o, in.open = Inbound{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Connections: 256}, map[netip.Addr]int{}
	for i := range 20 {
		in.subs[block.Source{Endpoint: block.EndpointID(i)}] = &subscriber{at: Stream{Events: InboundFrom(fmt.Sprintf("192.168.0.%d", i))}}
	}
	connect := func(host string, tries int) (taken int) {
		for range tries {
			if in.admit(&net.TCPAddr{IP: net.ParseIP(host), Port: 1}) {
				taken++
			}
		}
		return taken
	}
	for _, c := range []struct {
		host string
		want int
	}{
		{"10.0.0.1", 64}, {"10.0.0.2", 64}, {"10.0.0.3", 0}, {"192.168.0.1", inboundPerHost}, {"192.168.0.99", 0}, {"192.168.0.2", inboundPerHost},
	} {
		if got := connect(c.host, 300); got != c.want {
			t.Errorf("%s: %d connections, want %d", c.host, got, c.want)
		}
	}
	in.left(&net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1})
	if got := connect("10.0.0.3", 300); got != 1 {
		t.Errorf("%d connections in the place of one", got)
	}
	for i := range 20 {
		connect(fmt.Sprintf("192.168.0.%d", i), 300)
	}
	if in.all != 256 || in.relay != 128 {
		t.Errorf("%d connections, %d of them from outside of the pool", in.all, in.relay)
	}
	clear(in.subs) // they were never opened
}
