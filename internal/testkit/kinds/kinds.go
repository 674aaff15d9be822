package kinds

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Kind is a kind of request.
type Kind struct {
	Name string
	send func(ctx context.Context, addr string) (*http.Response, []byte, error)
}

// answerTimeout is how long an answer may take on a machine with other things to do.
const answerTimeout = time.Minute

// All lists the kinds.
func All() []Kind {
	list := []Kind{
		post("chat", "/v1/chat/completions", chat(1<<10)),
		post("chat of 400 KB", "/v1/chat/completions", chat(400<<10)),
		post("chat of 5 MB", "/v1/chat/completions", chat(5<<20)),
		post("stream", "/v1/stream", chat(1<<10)),
		post("broken JSON", "/v1/chat/completions", []byte(`{"model": "m", "messages": [`)),
		post("no body", "/v1/chat/completions", nil),
		post("query and escapes", "/v1/completions;v=1?a=%20b%2Fc&a=%C3%BC&d=//", chat(100)),
		post("escaped path", "/v1/files/a%2Fb%20c/content", chat(100)),
		post("large answer", "/v1/large", chat(100)),
		post("answer without content", "/v1/none", chat(100)),
		post("packed answer", "/v1/packed", chat(100), "Accept-Encoding", "gzip"),
		post("redirect", "/v1/elsewhere", chat(100)),
		post("bad request", "/v1/completions", chat(100), "X-Answer", "400"),
		post("no such model", "/v1/completions", chat(100), "X-Answer", "404"),
		post("too many requests", "/v1/completions", chat(100), "X-Answer", "429"),
		post("engine's fault", "/v1/completions", chat(100), "X-Answer", "500"),
		post("headers", "/v1/completions", chat(100), "Authorization", "Bearer sk-1", "OpenAI-Beta", "assistants=v2", "Cookie", "a=b; c=d",
			"X-Many", "one", "X-Many", "two", "X-Session-Id", "s-1", "X-Long", strings.Repeat("long ", 2400)),
		post("form", "/v1/audio/transcriptions", []byte("model=m&language=en"), "Content-Type", "application/x-www-form-urlencoded"),
		post("packed body", "/v1/chat/completions", packed(chat(10<<10)), "Content-Encoding", "gzip"),
		post("prefix", "/team-a/v1/chat/completions", chat(1<<10)),
		post("prefix for the version", "/openai/deployments/m/chat/completions?api-version=1", chat(1<<10)),
		post("other call of a known end", "/v1/threads/t1/messages", []byte(`{"role":"user","content":"x"}`)),
		post("type in capitals", "/v1/chat/completions", chat(1<<10), "Content-Type", "Application/JSON; Charset=UTF-8"),
		post("no type", "/v1/chat/completions", chat(1<<10), "Content-Type", ""),
		raw("absolute path", "POST http://a/v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n"+`{"model":"m","prompt":"x"}`, ""),
		raw("empty chunks", "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""),
		raw("DELETE with a body", "DELETE /v1/files/f1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", ""),
		upload(), chunked(), plain("GET", "/v1/models"), plain("HEAD", "/v1/models"), plain("OPTIONS", "/v1/chat/completions"), plain("DELETE", "/v1/responses/r1"),
		raw("asks before the body", "POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n", `{"model":"m","prompt":"x"}`),
		raw("HTTP/1.0", "POST /v1/completions HTTP/1.0\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n"+`{"model":"m","prompt":"x"}`, ""),
		{"upgrade", upgrade},
	}
	return list
}

// Ask sends every kind except those named in but, and returns the responses by kind.
func Ask(tb testing.TB, addr string, but ...string) map[string]string {
	tb.Helper()
	answers := map[string]string{}
	for _, k := range All() {
		if strings.Contains("\n"+strings.Join(but, "\n")+"\n", "\n"+k.Name+"\n") {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		resp, body, err := k.send(ctx, addr) //nolint:bodyclose // it has been read and closed
		cancel()
		if err != nil {
			answers[k.Name] = "error: " + err.Error()
			continue
		}
		answers[k.Name] = shown(resp, body)
	}
	return answers
}

// Compare sends every kind except those named in but to proxy and to engine, whose handler is
// Engine's. It returns the number of requests sent through the proxy.
func Compare(tb testing.TB, proxy, engine string, but ...string) int {
	tb.Helper()
	got, want := Ask(tb, proxy, but...), Ask(tb, engine, but...)
	for name, text := range want {
		if strings.HasPrefix(text, "error") {
			tb.Errorf("%s: the engine itself: %s", name, text)
		}
		if diff := cmp.Diff(text, got[name]); diff != "" {
			tb.Errorf("%s: not as from the engine itself (-direct +proxy):\n%s", name, diff)
		}
	}
	return len(got)
}

func chat(n int) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("words ", n/6))
}

func packed(p []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(p)
	_ = z.Close()
	return b.Bytes()
}

func post(name, path string, body []byte, headers ...string) Kind {
	return Kind{name, func(ctx context.Context, addr string) (*http.Response, []byte, error) {
		return do(ctx, "POST", "http://"+addr+path, bytes.NewReader(body), headers...)
	}}
}

func plain(method, path string) Kind {
	return Kind{method, func(ctx context.Context, addr string) (*http.Response, []byte, error) {
		return do(ctx, method, "http://"+addr+path, http.NoBody)
	}}
}

// chunked sends a body of undeclared length.
func chunked() Kind {
	return Kind{"chunked", func(ctx context.Context, addr string) (*http.Response, []byte, error) {
		return do(ctx, "POST", "http://"+addr+"/v1/chat/completions", io.MultiReader(bytes.NewReader(chat(50<<10)), strings.NewReader(" ")))
	}}
}

func upload() Kind {
	return Kind{"upload", func(ctx context.Context, addr string) (*http.Response, []byte, error) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		_ = m.SetBoundary("the-same-in-every-request")
		_ = m.WriteField("model", "m")
		part, _ := m.CreateFormFile("file", "speech.wav")
		_, _ = part.Write(bytes.Repeat([]byte{0, 255, 13, 10}, 20<<10))
		_ = m.Close()
		return do(ctx, "POST", "http://"+addr+"/v1/audio/transcriptions", &b, "Content-Type", m.FormDataContentType())
	}}
}

func do(ctx context.Context, method, url string, body io.Reader, headers ...string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "X-Many" {
			req.Header.Add(headers[i], headers[i+1])
			continue
		}
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, text, err
}

// raw sends head and, after an interim answer, rest.
func raw(name, head, rest string) Kind {
	return Kind{name, func(ctx context.Context, addr string) (*http.Response, []byte, error) {
		conn, in, err := dial(ctx, addr)
		if err != nil {
			return nil, nil, err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, head); err != nil {
			return nil, nil, err
		}
		resp, err := http.ReadResponse(in, nil)
		if err == nil && rest != "" && resp.StatusCode == http.StatusContinue {
			if _, err := io.WriteString(conn, rest); err != nil {
				return nil, nil, err
			}
			for err == nil && resp.StatusCode == http.StatusContinue { // proxies may repeat it
				resp, err = http.ReadResponse(in, nil)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp, text, err
	}}
}

// upgrade opens a WebSocket and sends a frame there and back.
func upgrade(ctx context.Context, addr string) (*http.Response, []byte, error) {
	conn, in, err := dial(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/realtime?model=m HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+socketKey+"\r\n\r\n"); err != nil {
		return nil, nil, err
	}
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, nil, err
	}
	frame := []byte("\x81\x85abcd\x09\x07\x0f\x08\x0e") // a masked "hello"
	if _, err := conn.Write(frame); err != nil {
		return nil, nil, err
	}
	back := make([]byte, len(frame))
	_, err = io.ReadFull(in, back)
	return resp, back, err
}

func dial(ctx context.Context, addr string) (net.Conn, *bufio.Reader, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return conn, bufio.NewReader(conn), nil
}
