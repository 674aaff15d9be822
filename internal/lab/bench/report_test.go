package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestReportRows(t *testing.T) {
	o, err := Options{Target: "x", BodySize: 40 << 10, Endpoints: 100, PID: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := Report{
		Options: o, Requests: 1900, Refused: 60, Failed: 40, Elapsed: 2 * time.Second, CPU: time.Second, RSS: 50 << 20,
		Answer: Percentiles{P50: 1234567 * time.Nanosecond, P90: 2 * time.Millisecond, P99: 3 * time.Millisecond, P999: 4 * time.Millisecond},
	}
	got := map[string]string{}
	for _, row := range r.Rows() {
		got[row.Name] = strings.TrimSpace(strings.Join([]string{formatValue(row.Value), row.Unit}, " "))
		if row.Conditions == "" {
			t.Errorf("%s has no conditions", row.Name)
		}
	}
	const of = "/body=40KB,endpoints=100,load=full,mode=full_duplex"
	want := map[string]string{
		"extproc_cpu_per_request" + of: "500 us",
		"extproc_answer_p50" + of:      "1235 us",
		"extproc_answer_p90" + of:      "2000 us",
		"extproc_answer_p99" + of:      "3000 us",
		"extproc_answer_p999" + of:     "4000 us",
		"extproc_throughput" + of:      "950 requests/s",
		"extproc_unsuccessful" + of:    "100 requests",
		"extproc_rss" + of:             "50 MB",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	r.Options.PID = 0
	for _, row := range r.Rows() {
		if strings.Contains(row.Name, "cpu") || strings.Contains(row.Name, "rss") {
			t.Errorf("row %s without a process to measure", row.Name)
		}
	}
}

func formatValue(v float64) string {
	b := strings.Builder{}
	if err := WriteTable(&b, []Row{{Value: v}}); err != nil {
		return err.Error()
	}
	return strings.Fields(b.String())[3]
}

func TestPercentiles(t *testing.T) {
	var d []time.Duration
	for i := 1; i <= 1000; i++ {
		d = append(d, time.Duration(i))
	}
	for _, tc := range []struct {
		in   []time.Duration
		want Percentiles
	}{
		{nil, Percentiles{}},
		{d[:1], Percentiles{1, 1, 1, 1, 1}},
		{d[:2], Percentiles{1, 2, 2, 2, 2}},
		{d, Percentiles{500, 900, 990, 999, 1000}},
	} {
		if got := percentiles(tc.in); got != tc.want {
			t.Errorf("of %d: %v, want %v", len(tc.in), got, tc.want)
		}
	}
}

func TestParseGoBench(t *testing.T) {
	f, err := os.Open("testdata/gobench.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := ParseGoBench(f, "example.com/m")
	if err != nil {
		t.Fatal(err)
	}
	const on, single = "go test -bench, GOMAXPROCS=2, Some CPU @ 2.00GHz", "go test -bench, GOMAXPROCS=1, Some CPU @ 2.00GHz"
	want := []Row{
		{"go_ns_per_op/indexer.Match/blocks=640", 21000, "ns/op", on},
		{"go_B_per_op/indexer.Match/blocks=640", 0, "B/op", on},
		{"go_allocs_per_op/indexer.Match/blocks=640", 0, "allocs/op", on},
		{"go_ns_per_op/indexer.Apply", 55.5, "ns/op", single},
		{"go_MB_per_s/indexer.Apply", 120.25, "MB/s", single},
		{"go_blocks_per_s/picker/plugins.Score/k=-1", 1e6, "blocks/s", on},
		{"go_ns_per_op/picker/plugins.Score/k=-1", 12, "ns/op", on},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"FAIL\texample.com/m/x [build failed]", "--- FAIL: BenchmarkX"} {
		if _, err := ParseGoBench(strings.NewReader(bad), "example.com/m"); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func FuzzParseGoBench(f *testing.F) {
	f.Add("pkg: m/x\nBenchmarkA-2 10 5 ns/op 1 B/op\n")
	f.Add("BenchmarkA-2 10 NaN ns/op")
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, text string) {
		rows, err := ParseGoBench(strings.NewReader(text), "m")
		if err != nil {
			return
		}
		if n := len(Merge(rows)); n != len(rows) {
			t.Errorf("%d rows with %d names", len(rows), n)
		}
	})
}

func TestMergeAndJSON(t *testing.T) {
	rows := Merge([]Row{{"b", 1, "u", ""}, {"c", 2, "u", "x"}}, []Row{{"a", 0.5, "u", ""}, {"b", 3, "v", "<y>"}})
	want := []Row{{"a", 0.5, "u", ""}, {"b", 3, "v", "<y>"}, {"c", 2, "u", "x"}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	path := filepath.Join(t.TempDir(), "build", "bench.json")
	for _, rows := range [][]Row{{{"old", 1, "", ""}}, nil, rows} {
		if err := WriteJSON(path, rows); err != nil {
			t.Fatal(err)
		}
		got, err := ReadJSON(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]Row{}, rows...), got); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	}
	if _, err := ReadJSON(path + ".none"); err == nil {
		t.Error("no error for a missing file")
	}
}

func TestTables(t *testing.T) {
	var b strings.Builder
	o, err := Options{Target: "x", Endpoints: 8}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	reports := []Report{{Options: o, Requests: 10, Elapsed: time.Second}}
	if err := WriteReports(&b, reports); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"full_duplex", "1KB", "p99.9", "-"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestParseUsage(t *testing.T) {
	const (
		stat   = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 100 1000 200"
		status = "Name:\ta\nVmHWM:\t 9000 kB\nVmRSS:\t   2048 kB\nThreads:\t9\n"
	)
	got, err := parseUsage([]byte(stat), []byte(status))
	if want := (Usage{CPU: 2 * time.Second, RSS: 2 << 20}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, tc := range [][2]string{{"", status}, {"1 (x) S 1", status}, {strings.ReplaceAll(stat, "150", "x"), status}, {stat, "Name:\ta\n"}, {stat, "VmRSS:\tmuch\n"}} {
		if _, err := parseUsage([]byte(tc[0]), []byte(tc[1])); err == nil {
			t.Errorf("no error for %q", tc)
		}
	}
}

// TestMeasureIdle measures this process while it works for a known time.
func TestMeasureIdle(t *testing.T) {
	const work = 200 * time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		for start := cpuTime(t); cpuTime(t)-start < work; {
		}
	}()
	got, err := MeasureIdle(t.Context(), os.Getpid(), 600*time.Millisecond, 100)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if got.Cores <= 0 || got.RSS <= 0 || got.Period < 600*time.Millisecond {
		t.Errorf("%+v: want CPU, memory and the period", got)
	}
	rows := got.Rows()
	if rows[0].Name != "picker_idle_cpu/endpoints=100" || rows[0].Unit != "cores" || rows[1].Name != "picker_idle_rss/endpoints=100" {
		t.Errorf("rows %v", rows)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := MeasureIdle(ctx, os.Getpid(), time.Hour, 1); err == nil {
		t.Error("no error when cancelled")
	}
}

func cpuTime(t *testing.T) time.Duration {
	u, err := ReadUsage(os.Getpid())
	if err != nil {
		t.Error(err)
		return time.Hour
	}
	return u.CPU
}
