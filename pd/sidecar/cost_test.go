package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkProxy measures the cost of the proxy. Each request is sent directly to the engine, twice
// in a row directly, and through the proxy, whole and with a prefill leg.
//
// cpu includes client, proxy and engine. The difference between "whole" and "direct" is the cost of
// the proxy and of one more connection. A split request has two legs one after the other, so
// compare it with "twice".
func BenchmarkProxy(b *testing.B) {
	const answer = `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}`
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body[max(len(body)-200, 0):]), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer[:len(answer)-1]+`,"kv_transfer_params":{"remote_block_ids":[[1,2,3]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600,"remote_prefill_cached_tokens":0}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		f := w.(http.Flusher)
		for range 1000 {
			_, _ = io.WriteString(w, textEvent)
			f.Flush()
		}
		_, _ = io.WriteString(w, doneEvent)
	}))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL})
	if err != nil {
		b.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	target := strings.TrimPrefix(engine.URL, "http://")
	for _, c := range []struct {
		name   string
		size   int
		stream bool
	}{{"1KB", 1 << 10, false}, {"40KB", 40 << 10, false}, {"1000tokens", 1 << 10, true}} {
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"stream":%v}`, strings.Repeat("word ", c.size/5), c.stream)
		for _, way := range []struct {
			name, url, prefill string
			first              string // sent before, in a row
		}{{"direct", engine.URL, "", ""}, {"whole", proxy.URL, "", ""}, {"twice", engine.URL, "", strings.Replace(body, `"stream":true`, `"stream":false`, 1)}, {"split", proxy.URL, target, ""}} {
			b.Run(c.name+"/"+way.name, func(b *testing.B) {
				var took []time.Duration
				cpu := processTime(b)
				for b.Loop() {
					start := time.Now()
					if way.first != "" {
						ask(b, way.url, way.first, "")
					}
					ask(b, way.url, body, way.prefill)
					took = append(took, time.Since(start))
				}
				n := float64(len(took))
				slices.Sort(took)
				b.ReportMetric(float64((processTime(b)-cpu).Microseconds())/n, "cpu-µs/req")
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// ask sends one request and reads its answer.
func ask(b *testing.B, url, body, prefill string) {
	b.Helper()
	r, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if prefill != "" {
		r.Header.Set(headerPrefiller, prefill)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.StatusCode, err)
	}
}

func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
