package sidecar

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
)

// TestHostilePrefillers: prefill engines send malicious answers. The client gets the decode
// engine's answer, the picker gets a report of the fault, and no byte of the malicious answer
// reaches either.
func TestHostilePrefillers(t *testing.T) {
	const object = `{"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`
	var asked atomic.Pointer[string]
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body := string(text) + r.Header.Get("Expect")
		asked.Store(&body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	defer engine.Close()
	b := memory.New(1 << 20)
	s, err := New(Options{Engine: engine.URL, MaxBody: 8 << 20, Budget: b, Prefill: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	head := func(more string) string {
		return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + more + "\r\n"
	}
	chunked := head("Transfer-Encoding: chunked\r\n")
	chunk := "1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n"
	for _, c := range []struct {
		name, says, faults string
		handed             bool // decode gets the prefill engine's KV transfer
		forEver            string
	}{
		{name: "an answer", says: head("Content-Length: 140\r\n") + object, handed: true},
		{name: "an answer twice", says: strings.Repeat(head("Content-Length: 140\r\n")+object, 2), handed: true},
		{name: "a KV transfer twice in one answer", says: head("Content-Length: 280\r\nConnection: close\r\n") + object + object, faults: "0=garbage"},
		{name: "trailers", says: head("Transfer-Encoding: chunked\r\nTrailer: X-Data-Parallel-Rank\r\n") + "8c\r\n" + object + "\r\n0\r\nX-Data-Parallel-Rank: 3\r\n\r\n", handed: true},
		{name: "100 Continue first", says: "HTTP/1.1 100 Continue\r\n\r\n" + head("Content-Length: 140\r\n") + object, handed: true},
		{name: "100 Continue without end", says: "", forEver: "HTTP/1.1 103 Early Hints\r\nLink: <" + strings.Repeat("x", 1000) + ">\r\n\r\n", faults: "0=broken"},
		{name: "nothing", says: head("Content-Length: 0\r\n"), faults: "0=garbage"},
		{name: "204", says: "HTTP/1.1 204 No Content\r\n\r\n", faults: "0=garbage"},
		{name: "a redirect", says: "HTTP/1.1 307 Temporary Redirect\r\nLocation: " + engine.URL + "/elsewhere\r\nContent-Length: 0\r\n\r\n", faults: "0=garbage"},
		{name: "another protocol", says: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + object, faults: "0=garbage"},
		{name: "HTTP/2", says: "\x00\x00\x00\x04\x00\x00\x00\x00\x00", faults: "0=broken", forEver: "\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
		{name: "compressed", says: head("Content-Encoding: gzip\r\nContent-Length: 6\r\n") + "\x1f\x8b\x08\x00\x00\x00", faults: "0=garbage"},
		{name: "a head of 1 MB", says: head("X-Large: " + strings.Repeat("x", 1<<20) + "\r\nContent-Length: 140\r\n"), faults: "0=broken"},
		{name: "a head without end", says: "HTTP/1.1 200 OK\r\n", forEver: "X-More: x\r\n", faults: "0=broken"},
		{name: "less than announced", says: head("Content-Length: 1000\r\n") + object, faults: "0=broken"},
		{name: "a body without end", says: chunked, forEver: chunk, faults: "0=busy"}, // exceeds the memory
		{name: "a stream", says: head("Transfer-Encoding: chunked\r\n") + "8\r\ndata: {}\r\n0\r\n\r\n", faults: "0=garbage"},
	} {
		target := talks(t, func(_ int, conn net.Conn, _ *http.Request) bool {
			_, err := io.WriteString(conn, c.says)
			for err == nil && c.forEver != "" {
				_, err = io.WriteString(conn, c.forEver)
			}
			return false
		})
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[],"x":1}`))
		r.Header.Set(headerPrefiller, target)
		r.Header.Set("Expect", "100-continue")
		w := httptest.NewRecorder()
		asked.Store(new(string))
		s.ServeHTTP(w, r)
		body := *asked.Load()
		if w.Code != 200 || w.Body.String() != `{"choices":[]}` || strings.Contains(body, "remote_block_ids") != c.handed || !strings.Contains(body, `"x":1`) {
			t.Errorf("%s: %d %.80s, decode was asked %.200s", c.name, w.Code, w.Body, body)
		}
		if got := w.Header().Get("X-Grapevine-Prefill-Faults"); got != c.faults {
			t.Errorf("%s: the picker receives %q, want %q", c.name, got, c.faults)
		}
		if local := strings.HasPrefix(w.Header().Get("X-Grapevine-Kv-Transfer"), "-1;"); local == c.handed {
			t.Errorf("%s: the picker receives %q", c.name, w.Header().Get("X-Grapevine-Kv-Transfer"))
		}
		if n := b.Used(memory.Bodies); n != 0 {
			t.Errorf("%s: %d bytes are still taken", c.name, n)
		}
	}
}

// TestCutRequests: if a client is cut off after any byte of its request, no engine gets a request,
// and no memory stays in use.
func TestCutRequests(t *testing.T) {
	var legs atomic.Int64
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		legs.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"kv_transfer_params":null}`)
	}))
	defer engine.Close()
	b := memory.New(1 << 20)
	s, err := New(Options{Engine: engine.URL, Budget: b})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	address := strings.TrimPrefix(proxy.URL, "http://")
	send := func(text string, cut bool) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, text)
		if cut {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.Copy(io.Discard, conn) // until the proxy answers or closes
	}
	head := "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + headerPrefiller + ": " + strings.TrimPrefix(engine.URL, "http://") + "\r\nConnection: close\r\n"
	for name, whole := range map[string]string{
		"announced": head + "Content-Length: 14\r\n\r\n" + `{"prompt":"x"}`,
		"in chunks": head + "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n" + "7\r\n{\"promp\r\n7\r\nt\":\"x\"}\r\n0\r\nX-T: 1\r\n\r\n",
	} {
		for n := range len(whole) {
			if send(whole[:n], true); legs.Load() != 0 {
				t.Fatalf("%s: engines were asked after %d of %d bytes", name, n, len(whole))
			}
		}
		if used := b.Used(memory.Bodies); used != 0 {
			t.Errorf("%s: %d bytes are still taken", name, used)
		}
		if send(whole, false); legs.Swap(0) == 0 {
			t.Errorf("%s: no engine is asked for the whole request", name)
		}
	}
}
