package sidecar

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// queued is a decode engine that answers after a time in its queue, and a prefill engine (10.…).
type queued struct {
	wait    time.Duration
	early   bool                 // a stream's headers are sent at once
	metrics func(n int64) string // the page at reading n; nil: none
	mute    bool                 // /health does not answer
	reads   atomic.Int64
	legs    atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (q *queued) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Path == "/health" && q.mute:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case r.URL.Path == "/health":
		return said("", ""), nil
	case r.URL.Path == "/metrics" && q.metrics != nil:
		return said(q.metrics(q.reads.Add(1)), "text/plain"), nil
	case r.URL.Path == "/metrics":
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	}
	body, _ := io.ReadAll(r.Body)
	if strings.HasPrefix(r.URL.Host, "10.") {
		return said(soundPrefill, "application/json"), nil
	}
	q.legs.Add(1)
	if !strings.Contains(string(body), `"stream":true`) {
		if err := sleep(r.Context(), q.wait); err != nil {
			return nil, err
		}
		return said(`{"choices":[{"message":{"content":"x"}}]}`, "application/json"), nil
	}
	if !q.early {
		if err := sleep(r.Context(), q.wait); err != nil {
			return nil, err
		}
	}
	resp := said(textEvent+doneEvent, "text/event-stream")
	resp.ContentLength = -1
	resp.Body = io.NopCloser(&slowBody{ctx: r.Context(), wait: q.wait, early: q.early, text: strings.NewReader(textEvent + doneEvent)})
	return resp, nil
}

type slowBody struct {
	ctx   context.Context
	wait  time.Duration
	early bool
	text  *strings.Reader
}

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	if b.early {
		b.early = false
		if err := sleep(b.ctx, b.wait); err != nil {
			return 0, err
		}
	}
	return b.text.Read(p)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestWaitingIsNotHanging: a request that waits in decode's queue stays there, streamed or not,
// split or whole.
func TestWaitingIsNotHanging(t *testing.T) {
	pages := map[string]func(int64) string{
		"no metrics":     nil,
		"moving metrics": func(n int64) string { return fmt.Sprintf("vllm:generation_tokens_total{model_name=\"m\"} %d\n", n) },
	}
	for name, page := range pages {
		for _, stream := range []bool{false, true} {
			for _, split := range []bool{false, true} {
				for _, early := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						q := &queued{wait: 900 * time.Second, metrics: page, early: early}
						w, took := waitFor(t, q, stream, split)
						if w.Code != http.StatusOK || took != q.wait || q.legs.Load() != 1 {
							t.Errorf("%s, stream %v, split %v, early head %v: status %d after %v and %d legs, want 200 after %v and one", name, stream, split, early, w.Code, took, q.legs.Load(), q.wait)
						}
					})
				}
			}
		}
	}
}

// TestHangingEnds: a leg of any kind ends if its engine's metrics do not change, or its health
// check does not answer.
func TestHangingEnds(t *testing.T) {
	frozen := func(int64) string {
		return "vllm:num_requests_running{model_name=\"m\"} 3\nprocess_cpu_seconds_total 7\n"
	}
	for _, mute := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			for _, split := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					q := &queued{wait: 24 * time.Hour, metrics: frozen, mute: mute}
					w, took := waitFor(t, q, stream, split)
					if w.Code != http.StatusGatewayTimeout || took > 15*time.Minute {
						t.Errorf("mute %v, stream %v, split %v: status %d after %v, want 504 within 15 minutes", mute, stream, split, w.Code, took)
					}
				})
			}
		}
	}
}

// waitFor sends a request and returns its answer and its time.
func waitFor(t *testing.T, q *queued, stream, split bool) (*httptest.ResponseRecorder, time.Duration) {
	t.Helper()
	s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: q})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"messages":[],"stream":%v}`, stream)))
	if split {
		r.Header.Set(headerPrefiller, "10.0.0.1:8000")
	}
	w, begun := httptest.NewRecorder(), time.Now()
	s.ServeHTTP(w, r)
	return w, time.Since(begun)
}
