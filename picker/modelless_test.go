package picker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// A request that names no model where the picker looks is counted in a pool of several models,
// and its path is logged once. In a pool of one model it is neither.
func TestModellessRequestsAreCounted(t *testing.T) {
	for _, c := range []struct {
		models []string
		want   float64
	}{{[]string{"llama", "qwen"}, 3}, {[]string{"llama", "llama"}, 0}} {
		var log bytes.Buffer
		s := newScheduler(t, Options{Pool: listing(2, true, c.models[:1], c.models[1:]), Log: slog.New(slog.NewTextHandler(&log, nil))})
		for _, path := range []string{"/v1/realtime", "/v1/realtime", "/v1/audio/speech"} {
			r := chatRequest("r", 10)
			r.Kind, r.Path, r.Model, r.Target = request.KindOther, path, "", ""
			if _, err := s.Choose(context.Background(), r); err != nil {
				t.Fatal(err)
			}
		}
		if got := testutil.ToFloat64(s.metrics.modelless); got != c.want {
			t.Errorf("models %q: %v requests counted, want %v", c.models, got, c.want)
		}
		requests, paths := s.Modelless()
		if float64(requests) != c.want || c.want > 0 && !slices.Equal(paths, []string{"/v1/audio/speech", "/v1/realtime"}) {
			t.Errorf("models %q: Modelless() = %d, %q, want %v requests of both paths", c.models, requests, paths, c.want)
		}
		if got, want := strings.Count(log.String(), "without a model"), int(c.want)*2/3; got != want {
			t.Errorf("models %q: %d paths logged, want %d", c.models, got, want)
		}
	}
}

// TestModellessPathsAreBounded: only the first sixteen paths are logged and listed, and all requests are
// counted.
func TestModellessPathsAreBounded(t *testing.T) {
	var log bytes.Buffer
	s := newScheduler(t, Options{Pool: listing(2, true, []string{"llama"}, []string{"qwen"}), Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 20 {
		r := chatRequest("r", 10)
		r.Kind, r.Path, r.Model, r.Target = request.KindOther, fmt.Sprint("/v1/", i), "", ""
		if _, err := s.Choose(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	requests, paths := s.Modelless()
	if requests != 20 || len(paths) != 16 {
		t.Errorf("Modelless() = %d, %d paths, want 20 requests and 16 paths", requests, len(paths))
	}
	if got := strings.Count(log.String(), "without a model"); got != 16 {
		t.Errorf("%d paths logged, want 16", got)
	}
}

// The query's model counts for calls whose body cannot name one.
func TestModelOfTheQuery(t *testing.T) {
	for _, c := range []struct{ path, query, body, want string }{
		{"/v1/realtime", "model=B%2Fm&x=1", "", "B/m"},
		{"/v1/realtime", "x=1&model=a+b&model=c", "", "a b"},
		{"/v1/realtime", "model=%zz", "", ""},
		{"/v1/realtime", "models=m", "", ""},
		{"/v1/other", "model=q", `{"model":"b"}`, "b"},
		{"/v1/completions", "model=q", `{"prompt":"x"}`, ""},
	} {
		r := &request.Request{Path: c.path, Query: c.query, Body: []byte(c.body)}
		if c.body == "" {
			request.ParsePrefix(r)
		} else if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		if r.Model != c.want || r.Target != c.want {
			t.Errorf("%s?%s: model %q, target %q, want %q", c.path, c.query, r.Model, r.Target, c.want)
		}
	}
}
