package extproc_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// echo answers an upgrade with 101 and returns the received bytes.
func echo(w http.ResponseWriter) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
	_, _ = io.Copy(conn, rw)
}

// TestEnvoyUpgrade: a WebSocket is scheduled at once, and sent bytes return while it is open. This
// holds in every mode except those in which Envoy itself waits for the end of a body (BUFFERED and
// BUFFERED_PARTIAL without mode_override).
func TestEnvoyUpgrade(t *testing.T) {
	list := shapes()
	for _, m := range []string{"BUFFERED", "BUFFERED_PARTIAL"} {
		list = append(list, shape{name: m + " both, override", params: envoyconf.Params{RequestBody: m, ResponseBody: m}, override: true})
	}
	for _, s := range list {
		held := strings.Contains(s.params.RequestBody+s.params.ResponseBody, "BUFFERED") && !s.override || s.name == "resilient without override"
		if held || s.params.RequestBody == "STREAMED" {
			continue
		}
		t.Run(s.name, func(t *testing.T) { checkUpgrade(t, s) })
	}
}

// TestEnvoyUpgradeStreamed: the same with STREAMED request bodies, which Envoy 1.39 delays forever.
func TestEnvoyUpgradeStreamed(t *testing.T) {
	for _, s := range shapes() {
		if s.params.RequestBody != "STREAMED" || strings.Contains(s.params.ResponseBody, "BUFFERED") {
			continue
		}
		t.Run(s.name, func(t *testing.T) { checkUpgrade(t, s) })
	}
}

func checkUpgrade(t *testing.T, s shape) {
	t.Helper()
	r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
	conn := r.dialRealtime()
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v, %v", resp, err)
	}
	for _, word := range []string{"first", "second", strings.Repeat("long", 20_000)} {
		go func() { _, _ = io.WriteString(conn, word) }()
		got := make([]byte, len(word))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != word {
			t.Fatalf("got %.20q, %v", got, err)
		}
	}
	r.book.set(func(b *book) {
		if b.inFlight != 1 {
			t.Errorf("%d requests are in flight while the WebSocket is open", b.inFlight)
		}
	})
	conn.Close()
	r.book.settle(t)
	r.clean()
}

// dialRealtime opens a WebSocket.
func (r *rig) dialRealtime() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.envoy.Addr("inference"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "GET /v1/realtime HTTP/1.1\r\nhost: engines\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"+
		"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	return conn
}

// TestEnvoyManyStreams: more requests at once than the 1,024 that a cluster of
// Envoy's allows by default.
func TestEnvoyManyStreams(t *testing.T) {
	const many = 1200
	r := newRig(t, rigOptions{params: envoyconf.Params{Kind: envoyconf.Gateway}})
	for range many {
		r.dialRealtime()
	}
	testkit.Await(t, "all in flight", func() bool {
		r.book.mu.Lock()
		defer r.book.mu.Unlock()
		return r.book.inFlight == many
	})
	for name, n := range r.envoy.Stats(t, "cluster.pickers.") {
		if strings.HasSuffix(name, "overflow") && n != 0 {
			t.Errorf("envoy: %s = %d", name, n)
		}
	}
	r.clean()
}

// TestEnvoyStreams: endless calls that send and receive in turn over HTTP/2 are scheduled at once:
// gRPC, lines of JSON, and WebSocket over HTTP/2.
func TestEnvoyStreams(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			s.params.EngineHTTP2 = true
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			r := &rig{t: t, client: &http.Client{Transport: &http.Transport{Protocols: &protocols}}}
			t.Cleanup(r.client.CloseIdleConnections)
			server := &http.Server{Handler: http.HandlerFunc(echoLines), Protocols: &protocols}
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = server.Serve(lis) }()
			t.Cleanup(func() { server.Close() })
			r.book = &book{endpoints: []string{lis.Addr().String()}}
			o := rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}, tls: listen.TLS{Plaintext: true}}
			r.picker, r.ready = openPicker(t, r.book, o)
			s.params.ExtProc, s.params.Endpoints, s.params.Plaintext = []string{r.picker.Addr().String()}, r.book.endpoints, true
			r.startEnvoy(s.params)
			for _, contentType := range []string{"application/grpc", "application/grpc+proto", "application/x-ndjson", "application/octet-stream"} {
				r.talk(contentType)
			}
			r.book.settle(t)
			r.clean()
		})
	}
}

// echoLines answers each line of a request when it arrives.
func echoLines(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("content-type", r.Header.Get("content-type"))
	w.(http.Flusher).Flush()
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		fmt.Fprintln(w, "echo", in.Text())
		w.(http.Flusher).Flush()
	}
}

// talk sends lines and expects the answer to each before the next.
func (r *rig) talk(contentType string) {
	r.t.Helper()
	body, out := io.Pipe()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.envoy.Addr("inference")+"/inference.Service/Stream", body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("content-type", contentType)
	req.Header.Set("te", "trailers")
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Errorf("%s: %v", contentType, err)
		return
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	for i := range 3 {
		fmt.Fprintln(out, "line", i)
		if want := fmt.Sprint("echo line ", i); !in.Scan() || in.Text() != want {
			r.t.Errorf("%s: status %d, got %q, want %q: %v", contentType, resp.StatusCode, in.Text(), want, in.Err())
			break
		}
	}
	out.Close()
	for in.Scan() {
	}
}

// pausedReader sends a body. From byte at on, it waits until the engine has received the request.
// Envoy buffers earlier bytes, up to its limit, until the request is scheduled.
type pausedReader struct {
	r    *rig
	body []byte
	at   int
}

func (p *pausedReader) Read(b []byte) (int, error) {
	if p.at == 0 {
		testkit.Await(p.r.t, "the engine is asked", p.r.asked.Load)
		p.at = len(p.body)
	}
	if len(p.body) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.body[:min(p.at, len(p.body))])
	p.body, p.at = p.body[n:], p.at-n
	return n, nil
}

// TestEnvoyUpload: a body that is not inspected passes completely, at any length.
func TestEnvoyUpload(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			s.params.BodyLimit = 1 << 20
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override, MaxBody: 1 << 20}})
			body := bytes.Repeat([]byte("--part--"), 1<<20)
			r.upload(body, &pausedReader{r, body, 64 << 10}) // chunked: of unknown length
		})
	}
}

// upload sends a form, which must reach the engine unchanged.
func (r *rig) upload(body []byte, from io.Reader) {
	r.t.Helper()
	resp, err := r.client.Post("http://"+r.envoy.Addr("inference")+"/v1/audio/transcriptions", "multipart/form-data; boundary=part", from)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("x-body-sha"); resp.StatusCode != http.StatusOK || got != digest(body) {
		r.t.Errorf("status %d, the engine saw %q", resp.StatusCode, got)
	}
	r.book.settle(r.t)
}

// TestEnvoyForm: an upload of megabytes is scheduled by its model name, in both configurations, and
// passes unchanged.
func TestEnvoyForm(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override, Forms: func() bool { return true }}})
			body := append([]byte("--part\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"), bytes.Repeat([]byte("\r\n--par"), 1<<19)...)
			body = append(body, "\r\n--part\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--part--\r\n"...)
			r.upload(body, bytes.NewReader(body))
			if got := r.book.requests[0].Model; got != "whisper" {
				t.Errorf("placed as model %q", got)
			}
		})
	}
}

// TestEnvoyTrust: routing headers of clients reach neither picker nor engine
// and never decide, with a picker and without.
func TestEnvoyTrust(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			stranger := &rig{t: t}
			stranger.startEngine()
			forged := map[string]string{"x-echo": "1"}
			for _, name := range request.RoutingHeaders() {
				forged[strings.ToUpper(name[:3])+name[3:]] = strings.TrimPrefix(stranger.engine.URL, "http://")
			}
			picked := true // signed headers of clusters pass the proxy; the picker removes them
			check := func() {
				t.Helper()
				resp, _, err := r.do(t.Context(), call{size: 1000, model: "m", answer: 10, header: forged})
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != http.StatusOK {
					return // the gateway kind fails closed
				}
				for _, name := range request.RoutingHeaders() {
					if got := resp.Header.Get("seen-" + name); got != "" && got != r.book.endpoints[0] && (picked || name != request.HeaderHop) {
						t.Errorf("the engine saw %s: %s", name, got)
					}
				}
				if resp.Header.Get("x-port") != r.engine.Listener.Addr().String() {
					t.Errorf("served by %s", resp.Header.Get("x-port"))
				}
			}
			for range 5 {
				check()
			}
			r.book.settle(t)
			r.clean()
			stopPicker(t, r.picker)
			picked = false
			for range 5 {
				check()
			}
		})
	}
}

// TestEnvoyStripsIntent: clients of an Envoy rendered with this option cannot set intent headers.
func TestEnvoyStripsIntent(t *testing.T) {
	r := newRig(t, rigOptions{params: envoyconf.Params{Kind: envoyconf.Resilient, StripIntent: true}})
	asked := map[string]string{"x-echo": "1"}
	for _, name := range request.IntentHeaders() {
		asked[name] = "7"
	}
	resp, _, err := r.do(t.Context(), call{size: 1000, model: "m", answer: 10, header: asked})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range request.IntentHeaders() {
		if got := resp.Header.Get("seen-" + name); got != "" {
			t.Errorf("the engine saw %s: %s", name, got)
		}
	}
	r.book.settle(t)
	if q := r.book.requests[0]; q.Objective != "" || q.FairnessID != "" || q.Target != "m" || q.SLOTTFT != 0 || q.SLOTPOT != 0 {
		t.Errorf("the picker read %+v", q)
	}
	r.clean()
}

// TestEnvoyRoutingHeaders: the picker removes these headers if the proxy does not.
func TestEnvoyRoutingHeaders(t *testing.T) {
	r := newRig(t, rigOptions{params: envoyconf.Params{Kind: envoyconf.Gateway, KeepRoutingHeaders: true}})
	forged := map[string]string{"x-echo": "1"}
	for _, name := range request.RoutingHeaders() {
		forged[name] = "192.0.2.1:80"
	}
	resp, _, err := r.do(t.Context(), call{size: 1000, model: "m", answer: 10, header: forged})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range request.RoutingHeaders() {
		if got := resp.Header.Get("seen-" + name); got != "" && got != r.book.endpoints[0] {
			t.Errorf("the engine saw %s: %s", name, got)
		}
	}
	r.book.settle(t)
	r.clean()
}
