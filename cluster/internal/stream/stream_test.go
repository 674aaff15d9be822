package stream

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// end is one member's Streams and the events they reported.
type end struct {
	*Streams
	mu     sync.Mutex
	frames map[string][]string
	links  map[string]bool
	broke  int           // number of links broken so far
	stall  chan struct{} // if set, Receive blocks on it
}

func newEnd(t testing.TB, id string, change func(*Options)) *end {
	t.Helper()
	// A long DeadAfter keeps a busy machine from breaking connections.
	opt := Options{Self: cluster.Member{ID: id, Boot: 1}, Label: "test", Bind: "127.0.0.1:0", DeadAfter: time.Hour}
	if change != nil {
		change(&opt)
	}
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	e := &end{Streams: s, frames: map[string][]string{}, links: map[string]bool{}}
	s.Open(e)
	t.Cleanup(s.Close)
	return e
}

func (e *end) Link(id string, up bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.links[id] = up
	if !up {
		e.broke++
	}
}

func (e *end) breaks() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broke
}

func (e *end) Receive(from string, frame []byte) {
	if e.stall != nil {
		<-e.stall
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frames[from] = append(e.frames[from], string(frame))
}

func (e *end) linked(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.links[id]
}

func (e *end) got(from string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.frames[from]...)
}

func (e *end) peer() Peer {
	return Peer{ID: e.opt.Self.ID, Boot: 1, Addr: e.Addr().String(), Fingerprint: e.Fingerprint()}
}

func (e *end) certificate() *tls.Certificate { return e.identity.Load().cert }

// introduce makes two ends each other's peers.
func introduce(t testing.TB, a, b *end) {
	t.Helper()
	a.SetPeers([]Peer{b.peer()})
	b.SetPeers([]Peer{a.peer()})
	testkit.Await(t, "linked", func() bool { return a.linked(b.opt.Self.ID) && b.linked(a.opt.Self.ID) })
}

func TestFrames(t *testing.T) {
	a, b := newEnd(t, "a", nil), newEnd(t, "b", nil)
	introduce(t, a, b)
	var want []string
	for i := range 2000 {
		f := fmt.Sprintf("frame %d", i)
		want = append(want, f)
		a.Send(group.Envelope{To: []string{"b"}, Frame: []byte(f)})
	}
	big := make([]byte, group.MaxFrame)
	b.Send(group.Envelope{Class: group.Bulk, Frame: big})
	testkit.Await(t, "all frames", func() bool { return len(b.got("a")) == len(want) && len(a.got("b")) == 1 })
	for i, f := range b.got("a") {
		if f != want[i] {
			t.Fatalf("frame %d is %q", i, f)
		}
	}
	testkit.Await(t, "told that they reach each other", func() bool {
		why, n := a.Unreachable()
		return len(why) == 0 && n == 1
	})
}

func TestBreakIsSeenAtOnce(t *testing.T) {
	a, b := newEnd(t, "a", nil), newEnd(t, "b", nil)
	introduce(t, a, b)
	b.Close() // otherwise only DeadAfter would end the silence
	testkit.Await(t, "link down", func() bool { return !a.linked("b") })
	a.Send(group.Envelope{Frame: []byte("nobody hears this")})
	if q := a.Queues(); q[0].Frames != 0 || q[0].Dropped == 0 {
		t.Errorf("queue to a closed peer is not empty: %+v", q)
	}
}

// TestSlowPeer: a peer that does not read loses frames, which are counted, and does not delay other
// peers.
func TestSlowPeer(t *testing.T) {
	a := newEnd(t, "a", func(o *Options) { o.QueueBytes = 1 << 20 })
	slow, fast := newEnd(t, "slow", nil), newEnd(t, "fast", nil)
	slow.stall = make(chan struct{})
	a.SetPeers([]Peer{slow.peer(), fast.peer()})
	slow.SetPeers([]Peer{a.peer()})
	fast.SetPeers([]Peer{a.peer()})
	testkit.Await(t, "linked", func() bool { return a.linked("slow") && a.linked("fast") })
	frame := make([]byte, 64<<10)
	for i := range 400 { // 25 MB, more than windows and queues hold
		a.Send(group.Envelope{Frame: frame})
		testkit.Await(t, "the fast peer has it", func() bool { return len(fast.got("a")) == i+1 })
	}
	for _, q := range a.Queues() {
		if q.Bytes > 1<<20 || (q.Peer == "slow") != (q.Dropped > 0) {
			t.Errorf("%+v", q)
		}
	}
	before := len(slow.got("a"))
	close(slow.stall)
	testkit.Await(t, "the slow peer goes on", func() bool { return len(slow.got("a")) > before })
}

// dialAs opens a stream to s with a certificate and sends a hello.
func dialAs(t *testing.T, s *end, cert *tls.Certificate, h []byte) (grpc.ClientStream, error) {
	t.Helper()
	creds := insecure.NewCredentials()
	if cert != nil {
		creds = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*cert}, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	}
	conn, err := grpc.NewClient("passthrough:///"+s.Addr().String(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testkit.HangTimeout)
	t.Cleanup(cancel)
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, fullMethod, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return nil, err
	}
	if h != nil {
		_ = st.SendMsg(&h)
	}
	var b []byte
	return st, st.RecvMsg(&b)
}

// TestUnknownPeers: a client that is not the member it claims to be is rejected.
func TestUnknownPeers(t *testing.T) {
	a, b, c := newEnd(t, "a", nil), newEnd(t, "b", nil), newEnd(t, "c", nil)
	a.SetPeers([]Peer{b.peer(), c.peer()})
	other, err := selfSigned("b")
	if err != nil {
		t.Fatal(err)
	}
	helloOf := func(label, id string, boot uint64) []byte {
		return hello{Label: label, ID: id, Boot: boot}.append(nil)[:4+1+len(label)+1+len(id)+8] // in the form of the previous release
	}
	meant := func(to string, boot uint64) []byte {
		return hello{Label: "test", ID: "b", Boot: 1, To: to, ToBoot: boot}.append(nil)
	}
	for _, tc := range []struct {
		what   string
		cert   *tls.Certificate
		hello  []byte
		code   codes.Code
		reason string
	}{
		{"no TLS", nil, helloOf("test", "b", 1), codes.Unavailable, RefusedPlaintext},
		{"a certificate that is nobody's", other, helloOf("test", "b", 1), codes.Unavailable, RefusedIdentity},
		{"another member's name", c.certificate(), helloOf("test", "b", 1), codes.PermissionDenied, RefusedIdentity},
		{"another group", b.certificate(), helloOf("other", "b", 1), codes.PermissionDenied, RefusedLabel},
		{"an earlier process", b.certificate(), helloOf("test", "b", 7), codes.NotFound, ""},
		{"no member", b.certificate(), helloOf("test", "x", 1), codes.NotFound, ""},
		{"meant for another member", b.certificate(), meant("c", 1), codes.FailedPrecondition, ""},
		{"meant for an earlier process", b.certificate(), meant("a", 7), codes.FailedPrecondition, ""},
		{"garbage", b.certificate(), []byte("GET / HTTP/1.1"), codes.InvalidArgument, RefusedFrame},
		{"silence", b.certificate(), nil, codes.DeadlineExceeded, RefusedFrame},
	} {
		was := a.Refused()[tc.reason]
		_, err := dialAs(t, a, tc.cert, tc.hello)
		if status.Code(err) != tc.code {
			t.Errorf("%s: %v", tc.what, err)
		}
		if tc.reason != "" {
			testkit.Await(t, tc.what+" is counted", func() bool { return a.Refused()[tc.reason] > was })
		}
	}
	// After a valid hello, a malformed message ends the stream and delivers nothing.
	oversized := appendFrame(appendFrame(nil, []byte("good")), make([]byte, group.MaxFrame+group.MaxPrefix+1))
	for what, batch := range map[string][]byte{
		"garbage":           append(appendFrame(nil, []byte("good")), 0xff, 0xff, 0xff, 0x7f, 'x'),
		"a frame too large": oversized,
		"a batch too large": append(oversized, make([]byte, maxMessage)...),
	} {
		st, err := dialAs(t, a, b.certificate(), helloOf("test", "b", 1))
		if err != nil {
			t.Fatal(err)
		}
		was := a.Refused()[RefusedFrame]
		_ = st.SendMsg(&batch)
		for err == nil {
			var m []byte
			err = st.RecvMsg(&m)
		}
		if c := status.Code(err); c != codes.InvalidArgument && c != codes.ResourceExhausted || len(a.got("b")) != 0 {
			t.Errorf("%s: %v, %v", what, err, a.got("b"))
		}
		testkit.Await(t, what+" is counted", func() bool { return a.Refused()[RefusedFrame] == was+1 })
	}
}

// TestImpostor: a member does not talk to a server without the peer's certificate.
func TestImpostor(t *testing.T) {
	a, b, imp := newEnd(t, "a", nil), newEnd(t, "b", nil), newEnd(t, "b", nil)
	imp.SetPeers([]Peer{a.peer()})
	p := b.peer()
	p.Addr = imp.Addr().String()
	a.SetPeers([]Peer{p})
	testkit.Await(t, "refused", func() bool { return a.Refused()[RefusedIdentity] > 0 })
	if a.linked("b") {
		t.Error("linked to an impostor")
	}
}

// TestWrongAddress: a member that cannot be dialed is notified.
func TestWrongAddress(t *testing.T) {
	a, b := newEnd(t, "a", nil), newEnd(t, "b", nil)
	wrong := b.peer()
	wrong.Addr = parts.FreeAddress(t) // nothing listens there
	a.SetPeers([]Peer{wrong})
	b.SetPeers([]Peer{a.peer()})
	testkit.Await(t, "told", func() bool {
		why, n := b.Unreachable()
		return n == 0 && why["a"] != ""
	})
	if b.WasReached() {
		t.Error("WasReached() = true before any peer has reached the address")
	}
	a.SetPeers([]Peer{b.peer()})
	testkit.Await(t, "told that it works", func() bool {
		why, n := b.Unreachable()
		return n == 1 && len(why) == 0
	})
	b.hear("a", replyUnreachable, "timeout")
	if why, n := b.Unreachable(); n != 0 || len(why) != 1 || !b.WasReached() {
		t.Errorf("after a later failure: %d reports, WasReached() = %t, want 1 and true", len(why), b.WasReached())
	}
}

// signed makes a certificate signed by root. Without a root, it makes a root certificate.
func signed(t *testing.T, root *tls.Certificate) *tls.Certificate {
	t.Helper()
	cert, err := selfSigned("x")
	if err != nil {
		t.Fatal(err)
	}
	key := cert.PrivateKey.(*ecdsa.PrivateKey)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	parent, signer := tmpl, cert.PrivateKey
	if root == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	} else {
		parent, _ = x509.ParseCertificate(root.Certificate[0])
		signer = root.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestGivenCertificates: with roots configured, a known fingerprint alone is not enough.
func TestGivenCertificates(t *testing.T) {
	root := signed(t, nil)
	leaf, _ := x509.ParseCertificate(root.Certificate[0])
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	given := func(c *tls.Certificate) func(*Options) {
		return func(o *Options) { o.Certificate, o.Roots = c, roots }
	}
	a, b := newEnd(t, "a", given(signed(t, root))), newEnd(t, "b", given(signed(t, root)))
	introduce(t, a, b)
	stranger := newEnd(t, "c", nil)
	stranger.SetPeers([]Peer{a.peer()})
	a.SetPeers([]Peer{b.peer(), stranger.peer()})
	testkit.Await(t, "a says why", func() bool {
		_, _, err := a.peers["c"].state()
		return err != nil && strings.Contains(err.Error(), "unknown authority")
	})
	if a.linked("c") || stranger.linked("a") {
		t.Error("linked without a signature")
	}
}

// TestNewCertificate: after a change of certificate a member keeps its streams, and new streams
// work once the peers have the new fingerprint.
func TestNewCertificate(t *testing.T) {
	a, b := newEnd(t, "a", nil), newEnd(t, "b", nil)
	introduce(t, a, b)
	next, err := selfSigned("a")
	if err != nil {
		t.Fatal(err)
	}
	old := a.certificate()
	a.SetCertificate(next, nil)
	b.SetPeers([]Peer{a.peer()})
	a.Send(group.Envelope{Frame: []byte("to b")})
	b.Send(group.Envelope{Frame: []byte("to a")})
	testkit.Await(t, "streams go on", func() bool { return len(b.got("a")) == 1 && len(a.got("b")) == 1 })
	if n := a.breaks() + b.breaks(); n > 0 {
		t.Errorf("links broke %d times", n)
	}
	if _, err := dialAs(t, b, next, hello{Label: "test", ID: "a", Boot: 1}.append(nil)); err != nil {
		t.Errorf("the new certificate: %v", err)
	}
	if _, err := dialAs(t, b, old, hello{Label: "test", ID: "a", Boot: 1}.append(nil)); status.Code(err) != codes.Unavailable {
		t.Errorf("the old certificate: %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello{Label: "test", ID: "a", Boot: 7, To: "b", ToBoot: 8}.append(nil))
	f.Add(hello{Label: "test", ID: "a", Boot: 7}.append(nil)[:4+5+2+8])
	f.Add([]byte("GVS1"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		h, ok := parseHello(b)
		if !ok {
			return
		}
		if again, ok := parseHello(h.append(nil)); !ok || again != h {
			t.Errorf("%+v reads as %+v", h, again)
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, []byte("one")), []byte("two")))
	f.Add([]byte{1, 0, 0})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		var again []byte
		n := 0
		err := splitBatch(b, func(frame []byte) {
			n++
			again = appendFrame(again, frame)
		})
		if err != nil && n > 0 {
			t.Error("frames of a malformed batch were delivered")
		}
		if err == nil && string(again) != string(b) {
			t.Errorf("%x reads as %x", b, again)
		}
	})
}

// TestManyUnknownPeers: connections above the limit are closed. Members connect again once silent
// untrusted connections have timed out.
func TestManyUnknownPeers(t *testing.T) {
	var many, silent atomic.Int64
	limit := func(l net.Listener) net.Listener {
		return budget.Limit(l, budget.ListenOptions{
			Connections: 8, FirstByte: 50 * time.Millisecond,
			Refused: func() { many.Add(1) }, Silent: func() { silent.Add(1) },
		})
	}
	a, b := newEnd(t, "a", func(o *Options) { o.Limit = limit }), newEnd(t, "b", nil)
	for range 40 {
		c, err := net.Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	testkit.Await(t, "strangers are refused and cut off", func() bool { return many.Load() > 0 && many.Load()+silent.Load() == 40 })
	introduce(t, a, b)
}
