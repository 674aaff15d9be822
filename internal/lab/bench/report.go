package bench

import (
	"fmt"
	"math"
	"runtime"
	"time"
)

// Percentiles of a set of durations.
type Percentiles struct{ P50, P90, P99, P999, Max time.Duration }

// percentiles returns, for each q, the smallest duration that is not exceeded by at least the share
// q of the sorted durations. All are zero without durations.
func percentiles(sorted []time.Duration) Percentiles {
	if len(sorted) == 0 {
		return Percentiles{}
	}
	at := func(q float64) time.Duration {
		return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
	}
	return Percentiles{P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: sorted[len(sorted)-1]}
}

// Report holds the results of a [Run].
type Report struct {
	Options  Options // with the defaults filled in
	Requests int     // with a destination and only correct answers
	Refused  int     // answered by the picker itself
	Failed   int     // wrong answer, gRPC error or timeout
	Failure  error   // one of them
	Messages int     // sent to the picker, for all requests
	Elapsed  time.Duration

	// Answer is the time from the request to the answer with the destination. With a rate it starts
	// when the request was due.
	Answer Percentiles

	CPU time.Duration // CPU time of the picker in the measured part
	RSS int64         // its resident memory in bytes at the end
}

// Throughput returns the requests with a destination per second.
func (r Report) Throughput() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Elapsed.Seconds()
}

// CPUPerRequest returns the picker's CPU time per request, or zero if no process was measured.
func (r Report) CPUPerRequest() time.Duration {
	if all := r.Requests + r.Refused + r.Failed; all > 0 {
		return r.CPU / time.Duration(all)
	}
	return 0
}

// Row is one measured value. Names are stable between releases and unique in a table.
type Row struct {
	Name       string  `json:"name"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	Conditions string  `json:"conditions"`
}

// Rows returns the values of the report.
func (r Report) Rows() []Row {
	o := r.Options
	of := fmt.Sprintf("/body=%s,endpoints=%d,load=%s,mode=%s", size(o.BodySize), o.Endpoints, o.load(), o.Mode)
	conditions := r.conditions()
	var rows []Row
	add := func(name string, value float64, unit string) {
		rows = append(rows, Row{name + of, round(value), unit, conditions})
	}
	if o.PID != 0 {
		add("extproc_cpu_per_request", micros(r.CPUPerRequest()), "us")
	}
	add("extproc_answer_p50", micros(r.Answer.P50), "us")
	add("extproc_answer_p90", micros(r.Answer.P90), "us")
	add("extproc_answer_p99", micros(r.Answer.P99), "us")
	add("extproc_answer_p999", micros(r.Answer.P999), "us")
	add("extproc_throughput", r.Throughput(), "requests/s")
	add("extproc_unsuccessful", float64(r.Refused+r.Failed), "requests")
	if o.PID != 0 {
		add("extproc_rss", megabytes(r.RSS), "MB")
	}
	return rows
}

// load returns the name of a run's pace.
func (o Options) load() string {
	if o.Rate > 0 {
		return fmt.Sprintf("%g/s", o.Rate)
	}
	return "full"
}

func (r Report) conditions() string {
	o := r.Options
	pace := "next when one is done"
	if o.Rate > 0 {
		pace = fmt.Sprintf("%g requests/s asked for", o.Rate)
	}
	encryption := "plaintext"
	if o.TLS != nil {
		encryption = "TLS"
	}
	return fmt.Sprintf("%d requests over %s, %d streams on %d connections, %s, %s, %d conversations share %.0f%%, response %s, load generator on the same %d CPUs",
		r.Requests, r.Elapsed.Round(10*time.Millisecond), o.Concurrency, o.Connections, encryption, pace,
		o.Conversations, o.Shared*100, size(o.ResponseSize), runtime.NumCPU())
}

// Rows returns the values of the measurement.
func (i Idle) Rows() []Row {
	of := fmt.Sprintf("/endpoints=%d", i.Endpoints)
	conditions := fmt.Sprintf("over %s without requests", i.Period.Round(10*time.Millisecond))
	return []Row{
		{"picker_idle_cpu" + of, round(i.Cores), "cores", conditions},
		{"picker_idle_rss" + of, round(megabytes(i.RSS)), "MB", conditions},
	}
}

// size formats bytes for row names: 40KB is 40·1024.
func size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%dMB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%dKB", bytes>>10)
	}
	return fmt.Sprintf("%dB", bytes)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func megabytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// round keeps four significant digits.
func round(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
