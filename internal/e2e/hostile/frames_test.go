//go:build hostile

package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// frames are attacks on the transports: HTTP/2 frames and gRPC messages that no library sends, at
// each listener; bodies in the smallest pieces; clients that do not read their answers.
var frames = []attack{
	{"headers that go on without an end (CONTINUATION)", (*rig).continuation, ""},
	{"streams opened and reset, frame by frame", (*rig).rapidReset, ""},
	{"floods of SETTINGS and PING", (*rig).pings, ""},
	{"compressed headers that unpack to 100 MB", (*rig).headerBomb, ""},
	{"messages of 4 GB, by their length", (*rig).absurdLengths, ""},
	{"compressed messages of gRPC", (*rig).compressedMessages, ""},
	{"an 8 MB body in chunks of one byte", (*rig).tinyChunks, ""},
	{"answers without requests, and trailers without an end", (*rig).answersAlone, ""},
	{"metadata and attributes of 3 MB", (*rig).hugeStructs, ""},
	{"2,000 WebSockets and tunnels", (*rig).tunnels, ""},
	{"pages that nobody reads", (*rig).slowReaders, ""},
}

// speakers are functions that connect to each HTTP/2 listener.
func (r *rig) speakers() map[string]func() (net.Conn, error) {
	secure := func(at string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		}
	}
	return map[string]func() (net.Conn, error){
		extprocv3.ExternalProcessor_Process_FullMethodName:                                 secure(r.pickAt),
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources": secure(r.xds),
		"/grpc.health.v1.Health/Watch":                                                     func() (net.Conn, error) { return net.DialTimeout("tcp", r.cage.health, 10*time.Second) },
		"/":                                                                                secure(r.peers), // only members get beyond the handshake
	}
}

// speaker is a connection for arbitrary frames.
type speaker struct {
	*http2.Framer
	net.Conn
	block bytes.Buffer // encoded headers
}

// begins returns the encoded headers that start a call.
func (s *speaker) begins(method string, more ...hpack.HeaderField) []byte {
	s.block.Reset()
	e := hpack.NewEncoder(&s.block) // without a dynamic table, so each call is complete
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: method}, {Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		f.Sensitive = true // never indexed
		_ = e.WriteField(f)
	}
	return bytes.Clone(s.block.Bytes())
}

// speak calls say on four connections to each listener for the given time, and reconnects when a
// connection is closed.
func (r *rig) speak(d time.Duration, say func(s *speaker, method string) error) string {
	end := time.Now().Add(d)
	var list []func()
	for method, dial := range r.speakers() {
		list = append(list, func() {
			for time.Now().Before(end) {
				c, err := dial()
				if err != nil {
					time.Sleep(50 * time.Millisecond) // refused
					continue
				}
				_ = c.SetDeadline(end)
				s := &speaker{Framer: http2.NewFramer(c, c), Conn: c}
				if _, err := io.WriteString(c, http2.ClientPreface); err == nil && s.WriteSettings() == nil {
					for err == nil && time.Now().Before(end) {
						err = say(s, method)
					}
				}
				c.Close()
			}
		})
	}
	together(4*len(list), func(i int) { list[i%len(list)]() })
	return ""
}

func (r *rig) continuation() string {
	piece := bytes.Repeat([]byte{0x10, 1, 'a', 1, 'b'}, 3000) // literals, never indexed
	return r.speak(4*time.Second, func(s *speaker, method string) error {
		if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.begins(method)}); err != nil {
			return err
		}
		for {
			if err := s.WriteContinuation(1, false, piece); err != nil {
				return err
			}
		}
	})
}

func (r *rig) rapidReset() string {
	return r.speak(4*time.Second, func(s *speaker, method string) error {
		block := s.begins(method)
		for id := uint32(1); ; id += 2 {
			if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}); err != nil {
				return err
			}
			if err := s.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				return err
			}
		}
	})
}

func (r *rig) pings() string {
	return r.speak(4*time.Second, func(s *speaker, _ string) error {
		for i := range 1000 { // their acknowledgements are not read
			if err := s.WritePing(false, [8]byte{byte(i)}); err != nil {
				return err
			}
			if err := s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// headerBomb references one 4 KB entry of the header table 25,000 times with one byte each.
func (r *rig) headerBomb() string {
	return r.speak(4*time.Second, func(s *speaker, method string) error {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		_ = e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("a", 3900)})
		block := append(s.begins(method), b.Bytes()...)
		for id := uint32(1); id < 200; id += 2 {
			if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block}); err != nil {
				return err
			}
			for i := range 2 { // 62: the newest entry of the table
				if err := s.WriteContinuation(id, i == 1, bytes.Repeat([]byte{0x80 | 62}, 12_500)); err != nil {
					return err
				}
			}
			block = s.begins(method)
		}
		return io.EOF
	})
}

// message returns a gRPC message whose header declares n bytes.
func message(compressed byte, n uint32, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{compressed}, n), data...)
}

func (r *rig) absurdLengths() string {
	return r.speak(4*time.Second, func(s *speaker, method string) error {
		block := s.begins(method)
		for id := uint32(1); id < 400; id += 2 {
			if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}); err != nil {
				return err
			}
			// Above the limit, at the limit, and of an unknown type.
			for _, m := range [][]byte{message(0, 1<<32-1, nil), message(0, 12<<20, []byte("abc")), message(7, 3, []byte("abc"))}[id/2%3:][:1] {
				if err := s.WriteData(id, false, m); err != nil {
					return err
				}
			}
		}
		return io.EOF
	})
}

func (r *rig) compressedMessages() string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	return r.speak(4*time.Second, func(s *speaker, method string) error {
		for id, how := range []string{"gzip", "", "deflate", "snappy", "identity"} {
			block, stream := s.begins(method, hpack.HeaderField{Name: "grpc-encoding", Value: how}), uint32(2*id+1)
			if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true}); err != nil {
				return err
			}
			for rest := message(1, uint32(b.Len()), b.Bytes()); len(rest) > 0; rest = rest[min(len(rest), 16<<10):] {
				if err := s.WriteData(stream, false, rest[:min(len(rest), 16<<10)]); err != nil {
					return err
				}
			}
		}
		return io.EOF
	})
}

// tinyChunks sends bodies byte by byte: as HTTP chunks to Envoy, and as messages to the program.
func (r *rig) tinyChunks() string {
	const size = 8 << 20
	end := time.Now().Add(8 * time.Second)
	chunks := bytes.Repeat([]byte("1\r\na\r\n"), 4096)
	together(4, func(i int) {
		if i%2 == 0 {
			c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(end)
			head := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"`, vocab.Name)
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", chat, len(head), head)
			for sent := 0; sent < size; sent += 4096 {
				if _, err := c.Write(chunks); err != nil {
					return
				}
			}
			return
		}
		conn, c := r.dial()
		defer conn.Close()
		ctx, cancel := context.WithDeadline(r.t.Context(), end)
		defer cancel()
		s, err := c.Process(ctx)
		if err != nil || s.Send(headersOf("POST", false)) != nil {
			return
		}
		one := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte("a")}}}
		for range size {
			if s.Send(one) != nil {
				return
			}
		}
	})
	return ""
}

func (r *rig) answersAlone() string {
	end := time.Now().Add(5 * time.Second)
	piece := &extprocv3.HttpBody{Body: []byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")}
	list := &corev3.HeaderMap{}
	for i := range 20_000 {
		list.Headers = append(list.Headers, &corev3.HeaderValue{Key: fmt.Sprint("x-trailer-", i), RawValue: []byte("v")})
	}
	kinds := []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: piece}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{Trailers: list}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{Trailers: list}}},
	}
	conn, c := r.dial()
	defer conn.Close()
	together(2*len(kinds), func(i int) {
		for time.Now().Before(end) {
			ctx, cancel := context.WithDeadline(r.t.Context(), end)
			if s, err := c.Process(ctx); err == nil {
				for s.Send(kinds[i%len(kinds)]) == nil { // the answers are not read
				}
			}
			cancel()
		}
	})
	return ""
}

// hugeStructs sends metadata and attributes with many members, deep nesting, and long strings.
func (r *rig) hugeStructs() string {
	deep := structpb.NewStringValue("a")
	for range 4000 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	many := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range 100_000 {
		many.Fields[fmt.Sprint("member-", i)] = structpb.NewNumberValue(1)
	}
	long := &structpb.Struct{Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint-subset": structpb.NewStringValue(strings.Repeat("10.0.0.1:8000,", 200_000))}}
	hint := &structpb.Struct{Fields: map[string]*structpb.Value{"deep": deep}}
	conn, c := r.dial()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	answered := atomic.Int64{}
	together(4, func(i int) {
		for range 5 {
			m := headersOf("POST", true)
			of := []*structpb.Struct{hint, many, long, many}[i]
			m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb.subset_hint": of, "envoy.lb": of}}
			m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": of}
			if s, err := c.Process(ctx); err == nil && s.Send(m) == nil {
				if _, err := s.Recv(); err == nil {
					answered.Add(1)
				}
				_ = s.CloseSend()
			}
		}
	})
	r.t.Logf("%d of 20 such requests were answered", answered.Load())
	return ""
}

// tunnels requests a thousand tunnels of each kind from Envoy.
func (r *rig) tunnels() string {
	at := strings.TrimPrefix(r.url, "http://")
	together(16, func(i int) {
		var held []net.Conn
		for k := range 125 {
			c, err := net.DialTimeout("tcp", at, 10*time.Second)
			if err != nil {
				break
			}
			held = append(held, c)
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			if k%2 == 0 {
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", chat)
			} else {
				fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", r.addr(r.canary.URL))
			}
		}
		time.Sleep(2 * time.Second)
		for _, c := range held {
			c.Close()
		}
	})
	return ""
}

// slowReaders asks for pages, many times on each connection, and reads nothing.
func (r *rig) slowReaders() string {
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for i := range 300 {
		c, err := net.DialTimeout("tcp", r.cage.admin, time.Second)
		if err != nil {
			break
		}
		held = append(held, c)
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		page := []string{"/metrics", "/status", "/debug/decisions?n=1000"}[i%3]
		_, _ = io.WriteString(c, strings.Repeat("GET "+page+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 50))
	}
	time.Sleep(3 * time.Second)
	if status := r.cage.get("/healthz"); status != http.StatusOK {
		return fmt.Sprintf("/healthz answers %d beside them", status)
	}
	return ""
}
