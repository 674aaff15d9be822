package extproc_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/grapevine-epp/grapevine/extproc"
)

// TestEnvoyConnect: a WebSocket over HTTP/2, which is CONNECT with a protocol, is
// placed at once and passes both ways, in the modes in which one over HTTP/1.1 does.
func TestEnvoyConnect(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			c := r.dialHTTP2()
			if !c.extended {
				t.Fatal("Envoy takes no CONNECT with a protocol")
			}
			c.connect("/v1/realtime")
			for _, word := range []string{"first", "second", strings.Repeat("long", 4_000)} {
				c.write(word)
				if got := c.read(len(word)); got != word {
					t.Fatalf("got %.20q", got)
				}
			}
			r.book.set(func(b *book) {
				if b.inFlight != 1 {
					t.Errorf("%d requests are in flight while the WebSocket is open", b.inFlight)
				}
			})
			c.conn.Close()
			r.book.settle(t)
			r.clean()
		})
	}
}

// client2 sends and receives single HTTP/2 frames on one connection, for one stream.
type client2 struct {
	t        *testing.T
	conn     net.Conn
	framer   *http2.Framer
	extended bool // the server takes CONNECT with a protocol
	unread   bytes.Buffer
}

func (r *rig) dialHTTP2() *client2 {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.envoy.Addr("inference"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c := &client2{t: r.t, conn: conn, framer: http2.NewFramer(conn, conn)}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.check(func() error { _, err := io.WriteString(conn, http2.ClientPreface); return err }())
	c.check(c.framer.WriteSettings())
	for {
		s, ok := c.next().(*http2.SettingsFrame)
		if !ok || s.IsAck() {
			continue
		}
		v, _ := s.Value(http2.SettingEnableConnectProtocol)
		c.extended = v == 1
		c.check(c.framer.WriteSettingsAck())
		return c
	}
}

func (c *client2) check(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Fatal(err)
	}
}

func (c *client2) next() http2.Frame {
	c.t.Helper()
	f, err := c.framer.ReadFrame()
	c.check(err)
	return f
}

// connect opens stream 1 and expects 200, the HTTP/2 equivalent of 101.
func (c *client2) connect(path string) {
	c.t.Helper()
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "http"}, {":path", path}, {":authority", "engines"}, {"sec-websocket-version", "13"}} {
		c.check(enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	c.check(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	for {
		if h, ok := c.next().(*http2.MetaHeadersFrame); ok {
			if status := h.PseudoValue("status"); status != "200" {
				c.t.Fatalf("status %s", status)
			}
			return
		}
	}
}

func (c *client2) write(text string) {
	c.t.Helper()
	c.check(c.framer.WriteData(1, false, []byte(text)))
}

// read returns the next n bytes of the stream.
func (c *client2) read(n int) string {
	c.t.Helper()
	for c.unread.Len() < n {
		if d, ok := c.next().(*http2.DataFrame); ok {
			c.unread.Write(d.Data())
		}
	}
	return string(c.unread.Next(n))
}
