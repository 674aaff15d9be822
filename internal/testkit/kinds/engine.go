package kinds

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// seen are the headers of a request that must reach the engine unchanged.
var seen = []string{
	"Accept", "Accept-Encoding", "Authorization", "Content-Encoding", "Content-Type", "Cookie", "Openai-Beta",
	"X-Long", "X-Many", "X-Session-Id",
}

// Engine answers the kinds. Its answers carry name in the header X-Engine.
func Engine(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Engine", name)
		if r.Header.Get("Upgrade") == "websocket" {
			echo(w, name)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		answer(w, r, body)
	})
}

func answer(w http.ResponseWriter, r *http.Request, body []byte) {
	h := w.Header()
	h["X-Twice"] = []string{"one", "two"}
	switch path, _, _ := strings.Cut(r.URL.Path, "?"); path {
	case "/v1/none":
		w.WriteHeader(http.StatusNoContent)
		return
	case "/v1/elsewhere":
		h.Set("Location", "/v1/models")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	case "/v1/large":
		h.Set("Content-Type", "application/octet-stream")
		for i := range 3 << 10 {
			fmt.Fprintf(w, "%1024d", i)
		}
		return
	case "/v1/packed":
		h.Set("Content-Type", "application/json")
		h.Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, `{"object":"list"}`)
		_ = z.Close()
		return
	case "/v1/stream":
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		for i := range 50 {
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"%d\"}}]}\n\n", i)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
		return
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	status := http.StatusOK
	if text := r.Header.Get("X-Answer"); text != "" {
		_, _ = fmt.Sscan(text, &status)
		h.Set("Retry-After", "7")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, describe(r, body))
}

// describe describes the request as the engine received it.
func describe(r *http.Request, body []byte) string {
	var b strings.Builder
	uri := r.RequestURI
	if r.URL.Host != "" { // of the absolute form, which proxies need not keep
		uri = r.URL.RequestURI()
	}
	fmt.Fprintf(&b, "%s %s\n", r.Method, uri)
	for _, name := range seen {
		if values := r.Header.Values(name); len(values) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", name, short(strings.Join(values, ", ")))
		}
	}
	fmt.Fprintf(&b, "%d bytes %s\n", len(body), digest(body))
	return b.String()
}

// echo hijacks the connection and echoes its input.
func echo(w http.ResponseWriter, name string) {
	conn, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	// All clients here send the same key, so the accept value is constant.
	fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nX-Engine: %s\r\n\r\n", socketAccept, name)
	if buf.Flush() != nil {
		return
	}
	_, _ = io.Copy(conn, bufio.NewReader(buf))
}

// The example of RFC 6455, section 1.3.
const (
	socketKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	socketAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:8])
}

func short(text string) string {
	if len(text) <= 100 {
		return text
	}
	return fmt.Sprintf("%d bytes %s", len(text), digest([]byte(text)))
}

// kept are the headers of an answer that must reach the client unchanged.
var kept = []string{"Cache-Control", "Content-Encoding", "Content-Type", "Location", "Retry-After", "X-Twice"}

// shown is an answer as a text.
func shown(resp *http.Response, body []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", resp.StatusCode)
	for _, name := range kept {
		if values := slices.Clone(resp.Header.Values(name)); len(values) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(values, ", "))
		}
	}
	if len(body) < 2000 {
		b.Write(body)
	} else {
		fmt.Fprintf(&b, "%d bytes %s\n", len(body), digest(body))
	}
	return b.String()
}
