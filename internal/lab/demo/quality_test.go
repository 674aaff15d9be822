package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

func TestQualityVerdict(t *testing.T) {
	row := func(n int, s rig.Sharing, hits float64, failed uint64, status string) QualityRow {
		return QualityRow{Case: QualityCase{Replicas: n, Sharing: s}, Result: Result{HitRatio: hits, Failed: failed}, Status: []string{status, status}}
	}
	app := func(policy string, p90 time.Duration, used int) QualityRow {
		return QualityRow{Case: QualityCase{3, rig.Shared, true, policy}, Result: Result{TTFT90: p90}, Used: used}
	}
	const joined, alone = "joined: 2 other members", "alone; reads 6 of 6 event streams itself"
	for name, c := range map[string]struct {
		rows []QualityRow
		want string
	}{
		"good":           {[]QualityRow{row(1, rig.Off, .9, 0, alone), row(3, rig.Shared, .8, 0, joined), row(3, rig.Apart, .6, 0, alone)}, ""},
		"sharing is bad": {[]QualityRow{row(1, rig.Off, .9, 0, alone), row(3, rig.Shared, .7, 0, joined)}, "70.0% hits, at least 76.5%"},
		"collapse":       {[]QualityRow{row(1, rig.Off, .9, 0, alone), row(3, rig.Apart, .4, 0, alone)}, "40.0% hits, at least 45.0%"},
		"says nothing":   {[]QualityRow{row(1, rig.Off, .9, 0, alone), row(3, rig.Apart, .9, 0, "alone")}, "does not say how it goes on"},
		"did not join":   {[]QualityRow{row(1, rig.Off, .9, 0, alone), row(3, rig.Shared, .9, 0, alone)}, "is on its own"},
		"a crowd":        {[]QualityRow{row(1, rig.Off, .9, 0, alone), app(fewest, 100*time.Millisecond, 8), app("", 109*time.Millisecond, 8)}, ""},
		"crowd waits":    {[]QualityRow{row(1, rig.Off, .9, 0, alone), app(fewest, 100*time.Millisecond, 8), app("", 120*time.Millisecond, 8)}, "p90 is 120 ms, 100 ms where"},
		"crowd on one":   {[]QualityRow{row(1, rig.Off, .9, 0, alone), app(fewest, 100*time.Millisecond, 8), app("", 100*time.Millisecond, 1)}, "1 of 8 engines were used"},
		"failed":         {[]QualityRow{row(1, rig.Off, .9, 2, alone)}, "2 requests failed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := QualitySummary{Rows: c.rows}
			got := strings.Join(s.Problems(), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			var out bytes.Buffer
			s.Write(&out)
			if strings.Contains(out.String(), "OK:") != (c.want == "") {
				t.Errorf("got\n%s", out.String())
			}
		})
	}
}

// TestQuality runs two cases for a few answers. It is too short for meaningful hit ratios, which
// package e2e tests.
func TestQuality(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := Options{Options: rig.Options{Envoy: parts.Envoy(t), Self: program(t), Engines: 3, Speed: 2, KVTokens: 400_000}, Out: &out, Rate: 5, Warm: time.Second, answers: 30}
	s, err := RunQuality(t.Context(), o, []QualityCase{{Replicas: 1, Sharing: rig.Off}, {Replicas: 3, Sharing: rig.Apart}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, q := range s.Rows {
		if q.Result.Requests == 0 || q.Result.Failed > 0 || len(q.Decisions) != q.Case.Replicas || len(q.Status) != q.Case.Replicas {
			t.Errorf("%s: %+v", q.Case, q)
		}
		for i, n := range q.Decisions {
			if n == 0 {
				t.Errorf("%s: replica %d was never asked", q.Case, i+1)
			}
			if !strings.Contains(q.Status[i], "reads 3 of 3 event streams itself") {
				t.Errorf("%s: replica %d reports %q", q.Case, i+1, q.Status[i])
			}
		}
	}
}
