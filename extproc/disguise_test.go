package extproc_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/grapevine-epp/grapevine/extproc"
)

// handedOver parses a request as engines written in Python do, and reports whether it contains a
// KV transfer. The first content type defines the body's type, and an unknown upgrade is ignored.
// JSON may be in UTF-8 with a byte order mark, UTF-16 or UTF-32.
func handedOver(r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	kind, _, _ := strings.Cut(r.Header.Get("content-type"), ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); kind != "" && kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return false
	}
	body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte{0}, nil), []byte(`\u006b`), []byte("k"))
	return bytes.Contains(body, []byte("kv_transfer_params"))
}

// wideJSON is text in two bytes a character, or in four.
func wideJSON(text string, size int, little, mark bool) string {
	units := utf16.Encode([]rune(text))
	if mark {
		units = append([]uint16{0xfeff}, units...)
	}
	b := make([]byte, size*len(units))
	for i, u := range units {
		low, high := size*i+size-1, size*i+size-2
		if little {
			low, high = size*i, size*i+1
		}
		b[low], b[high] = byte(u), byte(u>>8)
	}
	return string(b)
}

// TestEnvoyDisguises: a KV transfer in any encoding does not reach an engine that would read it,
// behind either kind of Envoy.
func TestEnvoyDisguises(t *testing.T) {
	const chat, other = "/v1/chat/completions", "/invocations"
	const typed = "Content-Type: application/json\r\n"
	const plain = `{"model":"m","messages":[{"role":"user","content":"a"}],"kv_transfer_params":{"do_remote_prefill":true}}`
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	type disguise struct{ name, path, header, body string }
	list := []disguise{
		{"none", chat, typed, plain},
		{"letters by their codes", "/v1/chat/completion%73", typed, plain},
		{"two slashes", "//v1/chat/completions", typed, plain},
		{"dots", "/v1/x/../chat/completions", typed, plain},
		{"dots by their codes", "/v1/%2e/chat/completions", typed, plain},
		{"a slash at the end", chat + "/", typed, plain},
		{"a query", chat + "?x=/v1/models", typed, plain},
		{"another call", other, typed, plain},
		{"a byte order mark", other, typed, "\xef\xbb\xbf" + plain},
		{"an escape in the name", other, typed, strings.Replace(plain, `"kv_transfer_params"`, `"\u006bv_transfer_params"`, 1)},
		{"equal names", other, typed, strings.Replace(plain, `"kv_transfer_params"`, `"kv_transfer_params":null,"kv_transfer_params"`, 1)},
		{"deep nesting before it", other, typed, `{"x":` + deep + `,` + plain[1:]},
		{"words for numbers", other, typed, `{"x":[NaN,-Infinity,1e999],` + plain[1:]},
		{"half of a pair", other, typed, `{"x":"\ud800","\udc00":"\u0000",` + plain[1:]},
		{"no content type", other, "", plain},
		{"a content type in other letters", other, "Content-Type: APPLICATION/JSON ; charset=utf-16\r\n", plain},
		{"two content types", other, typed + "Content-Type: multipart/form-data\r\n", plain},
		{"two content types, the other way round", other, "Content-Type: multipart/form-data\r\n" + typed, plain},
		{"an upgrade", other, typed + "Connection: upgrade\r\nUpgrade: websocket\r\n", plain},
		{"an upgrade that is not one", other, typed + "Upgrade: websocket\r\n", plain},
		{"a number of a megabyte", other, typed, `{"x":` + strings.Repeat("9", 1<<20) + `,` + plain[1:]},
	}
	for _, size := range []int{2, 4} {
		for _, little := range []bool{true, false} {
			for _, mark := range []bool{true, false} {
				for _, path := range []string{chat, other} {
					list = append(list, disguise{fmt.Sprintf("%d bytes a letter, little %v, mark %v, %s", size, little, mark, path), path, typed, wideJSON(" "+plain, size, little, mark)})
				}
			}
		}
	}
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			var reached, handed atomic.Int64
			r.engine.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				reached.Add(1)
				if handedOver(q) {
					handed.Add(1)
				}
			})
			for _, d := range list {
				reached.Store(0)
				handed.Store(0)
				status := r.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", d.path, d.header, len(d.body), d.body))
				if handed.Load() > 0 {
					t.Errorf("%s: an engine was handed a cache by a client (status %d)", d.name, status)
				}
				if status != http.StatusBadRequest && (strings.Contains(d.header, "multipart") || strings.Contains(d.header, "Connection")) {
					t.Errorf("%s: status %d, want 400: engines differ in what they make of it", d.name, status)
				}
				if status < 400 && reached.Load() == 0 {
					t.Errorf("%s: status %d, and no engine was asked", d.name, status)
				}
			}
		})
	}
	// Without inspection, each attempt reaches an engine.
	naked := false
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { naked = handedOver(q) }))
	defer engine.Close()
	for _, d := range list[len(list)-16:] {
		naked = false
		resp, err := http.Post(engine.URL+d.path, "application/json", strings.NewReader(d.body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !naked {
			t.Errorf("%s: the engine of this test does not read it", d.name)
		}
	}
}

// raw sends the text of a request to Envoy and returns the status, 0 without an answer.
func (r *rig) raw(text string) int {
	r.t.Helper()
	c, err := net.Dial("tcp", r.envoy.Addr("inference"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(c, text) }() // may be answered before it is read
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
