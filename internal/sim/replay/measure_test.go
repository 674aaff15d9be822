package replay

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMeasure(t *testing.T) {
	path := os.Getenv("TRACE")
	if path == "" {
		t.Fatal("no trace")
	}
	var rate float64
	for _, rt := range strings.Fields(os.Getenv("RATE")) {
		fmt.Sscan(rt, &rate)
		fmt.Println("rate", rate)
		var sc *Trace
		if strings.Contains(path, "/") {
			tr, err := OpenTrace(path, ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			sc = tr.Scale(ScaleOptions{Rate: rate, Seed: 1})
		} else {
			w, err := WorkloadByName(path)
			if err != nil {
				t.Fatal(err)
			}
			sc = w.Generate(GenerateOptions{Rate: rate, Seed: 1})
		}
		in, out := 0, 0
		for _, r := range sc.Requests {
			in += r.Input
			out += r.Output
		}
		fmt.Println(len(sc.Requests), "sessions", sc.Sessions, "blocks", sc.Blocks, sc.Length, in/len(sc.Requests), out/len(sc.Requests))
		for _, p := range []Policy{refLMetric, refLoadOnly, refSticky, refUnified, refExt} {
			start := time.Now()
			r, err := Run(context.Background(), Case{Trace: sc, Policy: p, Seed: 1, Warmup: sc.Length / 10})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%-10s n=%d err=%d p50=%.2f p90=%.2f p99=%.2f mean=%.2f tpot=%.4f hit=%.3f imb=%.2f done=%.3f  %v\n", p.Name, r.Requests, r.Errors, r.TTFT.P50, r.TTFT.P90, r.TTFT.P99, r.TTFT.Mean, r.TPOT.Mean, r.HitRatio, r.Imbalance, r.Completed, time.Since(start))
		}
	}
}
