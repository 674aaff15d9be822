package gate

import (
	"bytes"
	"math/rand/v2"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func TestEstimateIgnoresOutliers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var samples []float64
	for range 40 {
		samples = append(samples, 2+.1*rng.NormFloat64())
	}
	samples = append(samples, 50, 60, -30)
	e := estimate(samples)
	if e.Median < 1.95 || e.Median > 2.05 || e.Error > .04 || e.Error < .01 {
		t.Errorf("estimate() = %+v, want a median of about 2 with an error of about .02", e)
	}
}

func TestWorseRowsByKind(t *testing.T) {
	b := &Baseline{Commit: "c", Rows: []Row{
		{Name: "ratio", Kind: Ratio, Value: 2}, {Name: "count", Kind: Count, Value: 0}, {Name: "level", Kind: Level, Value: 100}}}
	row := func(name string, kind Kind, median, err float64, direct *Estimate) Result {
		return Result{Name: name, Kind: kind, Estimate: Estimate{Median: median, Error: err}, Direct: direct}
	}
	for _, c := range []struct {
		row  Result
		want bool
	}{
		{row("ratio", Ratio, 2.19, .01, nil), false},
		{row("ratio", Ratio, 2.3, .03, nil), true},
		{row("ratio", Ratio, 2.3, .15, nil), false}, // within the error
		{row("ratio", Ratio, 2.5, .03, &Estimate{Median: 1.02, Error: .02}), false},
		{row("ratio", Ratio, 2.5, .03, &Estimate{Median: 1.15, Error: .02}), true},
		{row("ratio", Ratio, 2, .03, &Estimate{Median: 1.15, Error: .02}), true}, // the no-op became slower too
		{row("count", Count, 0, 0, nil), false},
		{row("count", Count, 1, 0, nil), true},
		{row("level", Level, 125, 0, nil), false},
		{row("level", Level, 140, 0, nil), true},
		{row("new", Ratio, 9, 0, nil), false},
	} {
		if got := b.worse(c.row) != ""; got != c.want {
			t.Errorf("worse(%+v) = %v, want %v", c.row, got, c.want)
		}
	}
}

func TestRaisedFiguresNeedAReason(t *testing.T) {
	b := &Baseline{Rows: []Row{{Name: "a", Kind: Ratio, Value: 2, Error: .01}}}
	m := Measured{Rows: []Result{{Name: "a", Kind: Ratio, Estimate: Estimate{Median: 2.2, Error: .01}}}}
	if err := b.Store(m, "c", "m", ""); err == nil {
		t.Error("Store() of a raised figure without a reason = nil, want an error")
	}
	b.Rows[0] = Row{Name: "a", Kind: Ratio, Value: 2, Error: .01}
	if err := b.Store(m, "c", "m", "stricter TLS"); err != nil || b.Rows[0].Was != 2 || b.Rows[0].Reason == "" {
		t.Errorf("Store() with a reason = %v, row %+v", err, b.Rows[0])
	}
	const was, edited = `{"rows":[{"name":"a","kind":"ratio","value":2}]}`, `{"rows":[{"name":"a","kind":"ratio","value":2.2}]}`
	if Raised([]byte(edited), []byte(was)) == nil {
		t.Error("Raised() of an edited figure without a reason = nil, want an error")
	}
	explained := strings.Replace(edited, `2.2`, `2.2,"reason":"x"`, 1)
	if err := Raised([]byte(explained), []byte(was)); err != nil {
		t.Errorf("Raised() with a reason = %v, want nil", err)
	}
	if err := Raised([]byte(was), []byte(edited)); err != nil {
		t.Errorf("Raised() of a lowered figure = %v, want nil", err)
	}
}

func TestStoredBaselineIsValid(t *testing.T) {
	b, err := ReadBaseline("baseline.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) == 0 || len(b.Profile) == 0 || b.Commit == "" {
		t.Errorf("baseline has %d rows, %d functions, commit %q", len(b.Rows), len(b.Profile), b.Commit)
	}
}

//go:noinline
func burn(until time.Time) (n int) {
	for time.Now().Before(until) {
		n++
	}
	return n
}

func TestSharesOfAProfile(t *testing.T) {
	var list []Share
	// A busy machine may give the process no processor time for a while: then there are no samples.
	sampled := testkit.PollUntil(func() bool {
		var b bytes.Buffer
		if err := pprof.StartCPUProfile(&b); err != nil {
			t.Fatal(err)
		}
		burn(time.Now().Add(300 * time.Millisecond))
		pprof.StopCPUProfile()
		var err error
		list, err = shares(b.Bytes())
		return err == nil
	})
	if !sampled {
		t.Fatal("no CPU profile has samples")
	}
	for _, s := range list {
		if s.Function == "internal/lab/gate.burn" && s.Percent > 30 {
			return
		}
	}
	t.Errorf("shares() = %v, want internal/lab/gate.burn among them", list)
}

func TestGrownFunctions(t *testing.T) {
	was := []Share{{"a", 20}, {"b", 10}, {"c", 2}}
	now := []Share{{"a", 21}, {"b", 15}, {"new", 8}, {"c", 2}}
	got := grown(was, now)
	if len(got) != 2 || !strings.HasSuffix(got[0], "new") || !strings.HasSuffix(got[1], "b") {
		t.Errorf("grown() = %q, want new, then b", got)
	}
}

// TestNoopServesEveryMode plays every body mode against the no-op: the client checks answers.
func TestNoopServesEveryMode(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := lis.Addr().String()
	lis.Close()
	served := make(chan error, 1)
	go func() { served <- ServeNoop(t.Context(), at, "127.0.0.1:1") }()
	for _, mode := range bench.Modes {
		o := bench.Options{Target: at, TLS: bench.SelfSigned(), Mode: mode, BodySize: 40 << 10, Requests: 20}
		r, err := bench.Run(t.Context(), o)
		if err != nil || r.Failed+r.Refused > 0 || r.Requests != 20 {
			t.Errorf("%s: %d requests, %d failed (%v), error %v", mode, r.Requests, r.Failed, r.Failure, err)
		}
	}
	select {
	case err := <-served:
		t.Errorf("ServeNoop() ended early: %v", err)
	default:
	}
}
