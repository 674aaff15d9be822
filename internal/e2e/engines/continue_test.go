//go:build engines

package engines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// breaking breaks the stream of an engine off after some events.
type breaking struct {
	to    string
	after int
}

// ServeHTTP implements http.Handler.
func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, b.to+r.URL.Path, r.Body)
	if err != nil {
		panic(err)
	}
	out.Header = r.Header
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	buf, events := make([]byte, 1), 0
	for {
		if _, err := resp.Body.Read(buf); err != nil {
			return
		}
		_, _ = w.Write(buf)
		if buf[0] == '\n' {
			if events++; events == 2*b.after { // each event ends in two of them
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// continued is the part of a stream that a client reads.
type continued struct {
	text, finish string
	usage        string
	marked       bool
	roles, dones int
}

func readStream(text string) (c continued, err error) {
	for event := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		data := strings.TrimPrefix(event, "data: ")
		if data == "[DONE]" {
			c.dones++
			continue
		}
		var chunk struct {
			Choices []struct {
				Text   string
				Delta  struct{ Role, Content string }
				Finish string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Marker json.RawMessage `json:"grapevine_continued"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return c, fmt.Errorf("%q: %w", data, err)
		}
		for _, choice := range chunk.Choices {
			c.text, c.finish = c.text+choice.Text+choice.Delta.Content, c.finish+choice.Finish
			if choice.Delta.Role != "" {
				c.roles++
			}
		}
		c.marked = c.marked || chunk.Marker != nil
		if chunk.Usage != nil {
			c.usage = fmt.Sprint(*chunk.Usage)
		}
	}
	return c, nil
}

// TestRealContinue breaks streams of a real vLLM off after each of several events. The sidecar continues
// them at the engine, and the answer equals the undisturbed one; or it does not, and the stream breaks.
func TestRealContinue(t *testing.T) {
	model := writeTiny(t)
	writeWeights(t, model, tinyVocabulary)
	e := startEngine(t, model, []string{"--dtype", "float32"}, nil)
	e.ready(t)
	b := &breaking{to: e.url}
	first := httptest.NewServer(b)
	defer first.Close()
	counts := prometheus.NewRegistry()
	s, err := sidecar.New(sidecar.Options{Engine: first.URL, Continue: true, Registerer: counts})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s)
	defer front.Close()

	send := func(to, path string, body map[string]any) (c continued, err error) {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest(http.MethodPost, to+path, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(request.HeaderContinuation, strings.TrimPrefix(e.url, "http://"))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return c, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return c, err
		}
		if resp.StatusCode != http.StatusOK {
			return c, fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		return readStream(string(text))
	}
	for name, ask := range map[string]func(text string) (string, map[string]any){
		"text": func(text string) (string, map[string]any) { return "/v1/completions", map[string]any{"prompt": text} },
		"ids": func(text string) (string, map[string]any) {
			ids := []int{}
			for _, c := range []byte(text) {
				ids = append(ids, 1000+int(c))
			}
			return "/v1/completions", map[string]any{"prompt": ids}
		},
		"chat": func(text string) (string, map[string]any) {
			return "/v1/chat/completions", map[string]any{"messages": []map[string]string{{"role": "user", "content": text}}, "chat_template_kwargs": map[string]any{"enable_thinking": false}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			equal, broken := 0, 0
			for k := range 12 {
				path, body := ask(fmt.Sprintf("The story of engine %d, which", k))
				body["model"], body["temperature"], body["max_tokens"] = tiny, 0, 24
				body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
				want, err := send(e.url, path, body)
				if err != nil {
					t.Fatal(err)
				}
				b.after = 2 + 2*k
				got, err := send(front.URL, path, body)
				switch {
				case errors.Is(err, io.ErrUnexpectedEOF):
					broken++
					continue
				case err != nil:
					t.Fatal(err)
				case !got.marked:
					t.Errorf("after %d events: the answer is not marked", b.after)
				}
				got.marked = false
				if got != want {
					t.Errorf("after %d events:\n%+v, want\n%+v", b.after, got, want)
				}
				equal++
			}
			t.Logf("%d continued with the same answer, %d broke off", equal, broken)
			if name != "chat" && equal < broken || equal == 0 {
				t.Errorf("%d of %d streams were continued", equal, equal+broken)
			}
		})
	}
	families, err := counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if v := m.GetCounter().GetValue(); v > 0 && strings.Contains(f.GetName(), "continued") {
				t.Logf("%s %v %v", f.GetName(), m.GetLabel(), v)
			}
		}
	}
}
