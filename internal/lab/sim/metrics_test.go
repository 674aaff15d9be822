package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// reading is the sum over the series of a family that have the label value,
// "" for all; histograms count their observations.
type reading func(name, label string) float64

func scrape(t *testing.T, e *Engine) reading {
	t.Helper()
	r := do(t, e, "GET", "/metrics", "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(r.body))
	if err != nil || r.status != 200 {
		t.Fatalf("status %d, %v", r.status, err)
	}
	return func(name, label string) (sum float64) {
		if families[name] == nil {
			t.Errorf("no %s", name)
		}
		for _, m := range families[name].GetMetric() {
			if label == "" || strings.Contains(m.String(), fmt.Sprintf("%q", label)) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum
	}
}

func TestMetrics(t *testing.T) {
	begun := float64(time.Now().Unix())
	e := open(t, fast(Options{Ranks: 2, Model: "m", Adapters: []string{"ad"}, MaxLoRA: 4}))
	prompt := strings.Repeat(" prompt", 50)
	for range 3 {
		do(t, e, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":5,"ignore_eos":true}`, prompt), headerRank, "1")
	}
	do(t, e, "POST", "/v1/completions", `{"prompt":"x","model":"ad"}`, headerRank, "0")
	testkit.Await(t, "gauges settle", idle(e))
	f := scrape(t, e)
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"vllm:num_requests_running", "", 0},
		{"vllm:num_requests_waiting", "", 0},
		{"vllm:kv_cache_usage_perc", "", 0},
		{"vllm:prefix_cache_queries_total", "1", 150},
		{"vllm:prefix_cache_hits_total", "1", 96},
		{"vllm:generation_tokens_total", "1", 15},
		{"vllm:request_success_total", "length", 4},
		{"vllm:time_to_first_token_seconds", "1", 3},
		{"vllm:inter_token_latency_seconds", "1", 12},
		{"vllm:e2e_request_latency_seconds", "1", 3},
		{"vllm:cache_config_info", "4000", 2}, // both ranks' blocks, reported for each rank
		{"vllm:cache_config_info", "16", 2},
		{"http_requests_total", "/v1/completions", 4},
		{"http_request_duration_highr_seconds", "", 4},
	} {
		if got := f(c.name, c.label); got != c.want {
			t.Errorf("%s %s = %v, want %v", c.name, c.label, got, c.want)
		}
	}
	if start := f("process_start_time_seconds", ""); start < begun || start > begun+60 {
		t.Errorf("start time %v, now %v", start, begun)
	}
	if lora := f("vllm:lora_requests_info", "ad"); lora < begun {
		t.Errorf("lora_requests_info %v", lora)
	}
}

func TestPageSize(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore()}))
	if size := len(do(t, e, "GET", "/metrics", "").body); size < 90_000 || size > 120_000 {
		t.Errorf("the page has %d bytes", size)
	}
}

// TestGauges checks that running and waiting requests appear in the gauges.
func TestGauges(t *testing.T) {
	core := smallCore()
	core.MaxSeqs = 1
	e := open(t, Options{Core: core, Speed: 1})
	for range 3 {
		go func() {
			_, _ = try(t.Context(), e, "POST", "/v1/completions", `{"prompt":"x","max_tokens":1000,"ignore_eos":true}`)
		}()
	}
	testkit.Await(t, "one runs, two wait", func() bool {
		f := scrape(t, e)
		return f("vllm:num_requests_running", "") == 1 && f("vllm:num_requests_waiting", "") == 2 && f("vllm:kv_cache_usage_perc", "") >= 0.01
	})
}

func BenchmarkMetrics(b *testing.B) {
	e, err := Open(fast(Options{}))
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	requests, ranks := page.NewHTTPMeter(), []*page.Meter{page.NewMeter(e.opt.Core, nil)}
	var dst []byte
	for b.Loop() {
		dst = e.page.Append(dst[:0], time.Time{}, time.Time{}, ranks, requests)
	}
	b.SetBytes(int64(len(dst)))
}
