package extproc_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/grapevine-epp/grapevine/extproc"
)

// pack compresses a body.
func pack(t *testing.T, coding string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if coding == "zstd" {
		var err error
		if w, err = zstd.NewWriter(&out); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Compressed bodies are scheduled by their content and reach the engine unchanged, even if they
// cannot be decoded. A changed body reaches it decoded.
func TestEnvoyCompressedBodies(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			plain := requestBody(300_000, "model-a")
			for _, c := range []struct {
				header, coding, rename string
				sent, want             []byte
				model                  string
			}{
				{header: "content-encoding", coding: "gzip", sent: pack(t, "gzip", plain), model: "model-a"},
				{header: "content-encoding", coding: "zstd", sent: pack(t, "zstd", plain), model: "model-a"},
				{header: "x-body-compressed", coding: "zstd", sent: pack(t, "zstd", plain), model: "model-a"},
				{header: "content-encoding", coding: "snappy", sent: []byte("whatever it is")},
				{header: "content-encoding", coding: "gzip", sent: pack(t, "gzip", plain)[:40]},
				{header: "content-encoding", coding: "gzip", rename: "model-b", sent: pack(t, "gzip", plain), want: requestBody(300_000, "model-b"), model: "model-a"},
			} {
				r.book.set(func(b *book) { b.rename, b.requests = c.rename, nil })
				req, err := http.NewRequest(http.MethodPost, "http://"+r.envoy.Addr("inference")+"/v1/chat/completions", bytes.NewReader(c.sent))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("content-type", "application/json")
				req.Header.Set(c.header, c.coding)
				req.Header.Set("x-echo", "1")
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				want, coding := c.want, ""
				if want == nil {
					want, coding = c.sent, c.coding
				}
				if sha := resp.Header.Get("x-body-sha"); resp.StatusCode != http.StatusOK || sha != digest(want) {
					t.Errorf("%s %s: status %d, the engine saw another body", c.header, c.coding, resp.StatusCode)
				}
				if got := resp.Header.Get("seen-" + c.header); got != coding {
					t.Errorf("%s %s: the engine saw the coding %q, want %q", c.header, c.coding, got, coding)
				}
				r.book.settle(t)
				r.book.set(func(b *book) {
					if len(b.requests) != 1 || b.requests[0].Model != c.model {
						t.Errorf("%s %s: %d requests, want one of model %q", c.header, c.coding, len(b.requests), c.model)
					}
				})
			}
			r.book.set(func(b *book) { b.rename = "" })
			r.clean()
		})
	}
}

// An upload of unknown length is scheduled by its model name, in both configurations, and passes
// unchanged.
func TestEnvoyChunkedForm(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override, Forms: func() bool { return true }}})
			body := []byte("--part\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" + strings.Repeat("sound", 60_000) +
				"\r\n--part\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nB/Model-B\r\n--part--\r\n")
			r.upload(body, struct{ io.Reader }{bytes.NewReader(body)})
			if got := r.book.requests[0].Model; got != "B/Model-B" {
				t.Errorf("placed as model %q, want B/Model-B", got)
			}
		})
	}
}
