package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

func load(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".prom"))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestScan(t *testing.T) {
	started := time.UnixMilli(1763712345670)
	for name, want := range map[string]Page{
		"vllm": {Gauges: endpoint.Gauges{Engine: endpoint.EngineVLLM, Ranks: 1, Values: gauge.Values{Waiting: 3, Running: 12, KVUse: 0.4375}, BlockSize: 16, Blocks: 27918, Started: started, LoRA: &endpoint.LoRA{Max: 4, Running: []string{"sql", "chat"}, Waiting: []string{"legal"}}},
			QueryTokens: 1048576, HitTokens: 524288, Counts: true},
		"vllm_ranks": {Gauges: endpoint.Gauges{Engine: endpoint.EngineVLLM, Ranks: 2, Values: gauge.Values{Waiting: 5, Running: 10, KVUse: 0.3}, BlockSize: 32, Blocks: 2001, Started: started}},
		"vllm_old": {Gauges: endpoint.Gauges{Engine: endpoint.EngineVLLM, Ranks: 1, Values: gauge.Values{Running: 1, KVUse: 0.25}},
			Skipped: 1},
		"sglang": {Gauges: endpoint.Gauges{Engine: endpoint.EngineSGLang, Ranks: 1, Values: gauge.Values{Waiting: 2, Running: 7, KVUse: 0.31}, BlockSize: 64, Blocks: 65536},
			QueryTokens: 8128902, HitTokens: 4e6, Counts: true},
		"trtllm": {Gauges: endpoint.Gauges{Engine: endpoint.EngineTRTLLM, Ranks: 1, Values: gauge.Values{Waiting: 1, Running: 8, KVUse: 0.125}, BlockSize: 32, Blocks: 4096}},
		"triton": {Gauges: endpoint.Gauges{Engine: endpoint.EngineTriton, Ranks: 1, Values: gauge.Values{Waiting: 6, Running: 5, KVUse: 0.5}, BlockSize: 64, Blocks: 6240}},
	} {
		t.Run(name, func(t *testing.T) {
			page := load(t, name)
			want.Bytes = len(page)
			got, err := NewScanner().Scan(bytes.NewReader(page), endpoint.EngineUnknown)
			if err != nil {
				t.Fatal(err)
			}
			want.KVUse, got.KVUse = round(want.KVUse), round(got.KVUse)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
		})
	}
}

func round(v float64) float64 { return float64(int(v*1e9+0.5)) / 1e9 }

func TestScanWantsItsEngine(t *testing.T) {
	page := load(t, "vllm_ranks")
	got, err := NewScanner().Scan(bytes.NewReader(page), endpoint.EngineSGLang)
	if err != nil || got.Waiting != 77 || got.Engine != endpoint.EngineSGLang {
		t.Errorf("SGLang's part of a mixed page: %+v, %v", got, err)
	}
	got, err = NewScanner().Scan(bytes.NewReader(page), endpoint.EngineTriton)
	if !errors.Is(err, ErrNoGauges) || got.Started.IsZero() {
		t.Errorf("no part of the page: %+v, %v", got, err)
	}
}

func TestScanErrors(t *testing.T) {
	s := NewScanner()
	broken := errors.New("broken")
	if _, err := s.Scan(io.MultiReader(strings.NewReader("vllm:num_requests_waiting 1\n"), iotest.ErrReader(broken)), 0); !errors.Is(err, broken) {
		t.Errorf("broken body: %v", err)
	}
	if _, err := s.Scan(strings.NewReader(""), 0); !errors.Is(err, ErrNoGauges) {
		t.Errorf("empty page: %v", err)
	}
	if _, err := s.Scan(idle{}, 0); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("idle reader: %v", err)
	}
	long := "x" + strings.Repeat("y", 3*bufferSize)
	for _, page := range []string{
		long + "\nvllm:num_requests_waiting 1\n",
		"vllm:num_requests_waiting 1\n" + long,
		"vllm:num_requests_waiting 1\nvllm:num_requests_waiting{m=\"" + long + "\"} 9\n",
	} {
		got, err := s.Scan(strings.NewReader(page), 0)
		if err != nil || got.Waiting != 1 || got.Skipped != 1 || got.Bytes != len(page) {
			t.Errorf("page with a long line: %+v, %v", got, err)
		}
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// TestScanAllocates nothing for a page without adapters.
func TestScanAllocates(t *testing.T) {
	var page bytes.Buffer
	noise(&page, 40)
	page.Write(load(t, "vllm_ranks"))
	s, r := NewScanner(), bytes.NewReader(nil)
	if n := testing.AllocsPerRun(100, func() {
		r.Reset(page.Bytes())
		if _, err := s.Scan(r, endpoint.EngineVLLM); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per page", n)
	}
}

// check compares the scanner with the oracle, and with itself on readers that
// cut the page elsewhere.
func check(t rapid.TB, page []byte, engine endpoint.EngineType) {
	t.Helper()
	want, known, ok := oracle(page, engine)
	got, err := NewScanner().Scan(bytes.NewReader(page), engine)
	if ok {
		want.Bytes, want.Skipped = len(page), got.Skipped
		if known != (err == nil) {
			t.Fatalf("known: oracle %v, scanner %v, page:\n%s", known, err, page)
		}
		if diff := gocmp.Diff(want, got, approx); diff != "" {
			t.Fatalf("page (-oracle +scanner):\n%s\n%s", diff, page)
		}
	}
	for name, r := range map[string]io.Reader{
		"one byte": iotest.OneByteReader(bytes.NewReader(page)),
		"half":     iotest.HalfReader(bytes.NewReader(page)),
		"data+EOF": iotest.DataErrReader(bytes.NewReader(page)),
	} {
		again, errAgain := NewScanner().Scan(r, engine)
		if diff := gocmp.Diff(got, again); diff != "" || (err == nil) != (errAgain == nil) {
			t.Fatalf("%s reader differs: %s", name, diff)
		}
	}
}

var approx = gocmp.Comparer(func(a, b float64) bool {
	d := a - b
	return a == b || max(d, -d) <= 1e-12*max(a, b, 1)
})

// TestDifferential compares with the Prometheus parser on pages drawn at
// random in the shapes that engines publish.
func TestDifferential(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		d := rapid.SampledFrom(dialects).Draw(t, "dialect")
		ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
		if rapid.Bool().Draw(t, "before") {
			noise(&b, 3)
		}
		for range rapid.IntRange(0, 1).Draw(t, "starts") {
			drawLine(t, &b, "process_start_time_seconds", "", 0)
		}
		for _, name := range []string{d.waiting, d.running, d.use, d.queries, d.hits, d.generated, d.ended, d.aborted} {
			if name == "" || rapid.IntRange(0, 9).Draw(t, "leave out") == 0 {
				continue
			}
			for rank := range ranks {
				drawLine(t, &b, name, "", rank)
			}
		}
		if d.engine == endpoint.EngineVLLM && rapid.Bool().Draw(t, "old") {
			drawLine(t, &b, "vllm:gpu_cache_usage_perc", "", 0)
		}
		drawCache(t, &b, d, ranks)
		if rapid.Bool().Draw(t, "adapters") {
			for i := range rapid.IntRange(0, 4).Draw(t, "reports") {
				lists := fmt.Sprintf(`max_lora="%d",running_lora_adapters=%s,waiting_lora_adapters=%s`, i,
					escaped(rapid.StringMatching(`([a-cn,\\ "]|\n){0,8}`).Draw(t, "running")), escaped(rapid.String().Draw(t, "waiting")))
				drawLine(t, &b, "vllm:lora_requests_info", lists, i)
			}
		}
		noise(&b, 2)
		check(t, b.Bytes(), rapid.SampledFrom([]endpoint.EngineType{endpoint.EngineUnknown, d.engine}).Draw(t, "engine"))
	})
}

func drawCache(t *rapid.T, b *bytes.Buffer, d dialect, ranks int) {
	for rank := range ranks {
		if d.config == "" {
			drawLine(t, b, d.size, "", rank)
			drawLine(t, b, d.blocks, "", rank)
			continue
		}
		blocks := rapid.SampledFrom([]string{"None", "1024", "27918", "-1", "1e3"}).Draw(t, "blocks")
		drawLine(t, b, d.config, fmt.Sprintf(`%s="16",swap="4",%s=%q`, d.size, d.blocks, blocks), rank)
	}
}

// drawLine writes one series with labels and spaces as they come.
func drawLine(t *rapid.T, b *bytes.Buffer, name, labels string, rank int) {
	name, kind, _ := strings.Cut(name, "/")
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\t"}).Draw(t, "space") }
	parts := []string{fmt.Sprintf(`engine=%s"%d"`, space(), rank), "model_name=" + escaped(rapid.String().Draw(t, "model"))}
	if labels != "" {
		parts = append(parts, labels)
	}
	if kind != "" {
		label := "kv_cache_block_type"
		if strings.HasSuffix(name, "request_metrics") {
			label = "request_type"
		}
		parts = append(parts, fmt.Sprintf("%s=%q", label, kind))
	}
	value := rapid.SampledFrom([]string{"0.0", "1", "17.0", "0.123456789", "1.7637123456e+09", "NaN", "+Inf", "-1", "1e-05", "123456789012345678", "1e18", "1.1e18", "1e308", "1e400", "-1e308", "nan", "0x1p3"}).Draw(t, "value")
	fmt.Fprintf(b, "%s%s%s{%s%s%s%s} %s", space(), name, space(), space(), strings.Join(parts, ","+space()),
		rapid.SampledFrom([]string{"", ","}).Draw(t, "comma"), space(), value)
	if rapid.IntRange(0, 5).Draw(t, "time") == 0 {
		b.WriteString(" 1763712345670")
	}
	b.WriteByte('\n')
}

// escaped writes a label value as the text format does.
func escaped(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func TestDecimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-9]{0,9}\.?[0-9]{0,9}`).Draw(t, "s")
		got, ok := decimal([]byte(s))
		want, err := strconv.ParseFloat(s, 64)
		if ok && (err != nil || got != want) {
			t.Fatalf("decimal(%q) = %v, want %v %v", s, got, want, err)
		}
	})
}

func FuzzScan(f *testing.F) {
	for _, name := range []string{"vllm", "vllm_ranks", "vllm_old", "sglang", "trtllm", "triton"} {
		f.Add(load(f, name), uint8(0))
	}
	f.Add([]byte("vllm:num_requests_waiting{a=\"\\\\\\\"}\"} 1\nvllm:num_requests_waiting } 2"), uint8(1))
	f.Add([]byte(customPage), uint8(1))
	own := added([]Dialect{{Name: "vllm", Custom: []CustomGauge{
		custom(f, "max", "gpu_temperature", CombineMax), custom(f, "sum", "balance{a=b}", CombineSum),
		custom(f, "mean", "vllm:num_requests_waiting", CombineMean),
	}}})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, page []byte, engine uint8) {
		s := NewScanner()
		e := endpoint.EngineType(engine % 5)
		got, err := s.scan(bytes.NewReader(page), own, e)
		if err != nil {
			return
		}
		if !(got.Waiting >= 0 && got.Running >= 0 && got.KVUse >= 0 && got.KVUse <= 1) || got.Blocks < 0 || got.BlockSize < 0 {
			t.Fatalf("absurd sample %+v", got)
		}
		for name, value := range got.Custom {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				t.Fatalf("custom gauge %s is %g", name, value)
			}
		}
		again, err := s.scan(iotest.OneByteReader(bytes.NewReader(page)), own, e)
		if diff := gocmp.Diff(got, again); diff != "" || err != nil {
			t.Fatalf("cut elsewhere: %v\n%s", err, diff)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	var page bytes.Buffer
	noise(&page, 21)
	page.Write(load(b, "vllm"))
	noise(&page, 21)
	s, r := NewScanner(), bytes.NewReader(nil)
	b.SetBytes(int64(page.Len()))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(page.Bytes())
		if _, err := s.Scan(r, endpoint.EngineVLLM); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(page.Len())/1e3, "page_kB")
}

// TestScanLatency checks that sums and counts of latency histograms are added over ranks, and that
// buckets and histograms of whole requests are not.
func TestScanLatency(t *testing.T) {
	want := endpoint.Latency{First: endpoint.LatencySum{Seconds: 7.5, Count: 30}, Gap: endpoint.LatencySum{Seconds: 3, Count: 150}}
	for engine, page := range map[string]string{
		"vllm": `vllm:num_requests_running{engine="0"} 1
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5"} 10
vllm:time_to_first_token_seconds_sum{engine="0"} 2.5
vllm:time_to_first_token_seconds_count{engine="0"} 10
vllm:time_to_first_token_seconds_sum{engine="1"} 5
vllm:time_to_first_token_seconds_count{engine="1"} 20
vllm:inter_token_latency_seconds_sum{engine="0"} 3
vllm:inter_token_latency_seconds_count{engine="0"} 150
vllm:request_time_per_output_token_seconds_sum{engine="0"} 9
`,
		"sglang": `sglang:num_running_reqs 1
sglang:time_to_first_token_seconds_sum 7.5
sglang:time_to_first_token_seconds_count 30
sglang:inter_token_latency_seconds_sum 3
sglang:inter_token_latency_seconds_count 150
`,
		"trtllm": `trtllm_num_requests_running 1
trtllm_time_to_first_token_seconds_sum 7.5
trtllm_time_to_first_token_seconds_count 30
trtllm_time_per_output_token_seconds_sum 3
trtllm_time_per_output_token_seconds_count 150
`,
	} {
		got, err := NewScanner().Scan(strings.NewReader(page), endpoint.EngineUnknown)
		if err != nil || got.Latency != want {
			t.Errorf("%s: %+v, %v, want %+v", engine, got.Latency, err, want)
		}
	}
}
