package sizing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	demand "github.com/grapevine-epp/grapevine/picker/sizing"
)

// Quantity is the time that a target limits.
type Quantity uint8

// Quantities.
const (
	FirstToken Quantity = iota // from the arrival to the first token
	PerToken                   // between the tokens of an answer, on average
	EndToEnd                   // from the arrival to the end of the answer
)

var quantities = []struct{ prefix, words string }{
	{"", "first token"}, {"per-token-", "time per token"}, {"end-to-end-", "end-to-end time"},
}

// Target limits a percentile of a quantity.
type Target struct {
	Of    Quantity
	Part  float64 // of the requests, 0.5 to 0.999
	Limit time.Duration
}

// ParseTarget reads p90=2s, per-token-p90=60ms or end-to-end-p99=30s.
func ParseTarget(s string) (Target, error) {
	name, limit, _ := strings.Cut(s, "=")
	t := Target{}
	for i, q := range quantities {
		if rest, ok := strings.CutPrefix(name, q.prefix); ok && q.prefix != "" {
			t.Of, name = Quantity(i), rest
		}
	}
	one, err := demand.ParseTarget(strings.TrimPrefix(name, "first-token-") + "=" + limit)
	if err != nil {
		return t, fmt.Errorf("%q: %w, per-token-p90=60ms or end-to-end-p99=30s", s, err)
	}
	t.Part, t.Limit = one.Part, time.Duration(math.Round(one.Seconds*1e9))
	return t, nil
}

// String returns the target in the form of the command line.
func (t Target) String() string {
	return fmt.Sprintf("%s%s=%s", quantities[t.Of].prefix, t.percentile(), t.Limit)
}

func (t Target) percentile() string {
	return (&demand.Target{Part: t.Part}).Percentile()
}

// words describes the target's quantity for people.
func (t Target) words() string { return t.percentile() + " of the " + quantities[t.Of].words }

// sample is the value of one request.
type sample struct {
	at      time.Duration // arrival
	seconds float64       // +Inf: refused
}

// samples returns the values of the requests that arrived after the warm-up. A refused request
// counts as infinitely late. A prompt that no engine has memory for does not count: more engines
// would not change that.
func (t Target) samples(tr *trace.Trace, r *replay.Result, warmup time.Duration) []sample {
	var out []sample
	for i := range r.Outcomes {
		q, o := &tr.Requests[i], &r.Outcomes[i]
		s := sample{at: q.At}
		switch {
		case q.At < warmup || o.Error == engine.ErrTooLong.Error():
			continue
		case o.Error != "":
			s.seconds = math.Inf(1)
		case t.Of == FirstToken:
			s.seconds = (o.First - q.At).Seconds()
		case t.Of == EndToEnd:
			s.seconds = (o.End - q.At).Seconds()
		case q.Output > 1:
			s.seconds = (o.End - o.First).Seconds() / float64(q.Output-1)
		default:
			continue
		}
		out = append(out, s)
	}
	return out
}

// quantile returns the part-quantile of the samples that keep accepts.
func quantile(samples []sample, part float64, keep func(i int) bool) float64 {
	v := make([]float64, 0, len(samples))
	for i := range samples {
		if keep == nil || keep(i) {
			v = append(v, samples[i].seconds)
		}
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(int(part*float64(len(v))), len(v)-1)]
}

// slicesOfTime is the number of parts of the measured time for standard errors.
const slicesOfTime = 10

// standardError estimates the standard error of the quantile of samples in order of arrival, by a
// jackknife that leaves out one tenth of the time after the other. Neighboring requests share
// queues, so single requests are not independent.
func standardError(samples []sample, part float64) float64 {
	if len(samples) < slicesOfTime {
		return math.Inf(1)
	}
	from, length := samples[0].at, samples[len(samples)-1].at-samples[0].at+1
	var all [slicesOfTime]float64
	mean := 0.0
	for g := range all {
		all[g] = quantile(samples, part, func(i int) bool {
			return int(int64(samples[i].at-from)*slicesOfTime/int64(length)) != g
		})
		mean += all[g] / slicesOfTime
	}
	sum := 0.0
	for _, x := range all {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum * (slicesOfTime - 1) / slicesOfTime)
}

// grows reports whether the samples, in order of arrival, show a queue that grows until the end: the
// last third misses the limit, and its mean is three times the first third's. A queue that grows all
// the time has five times.
func (t Target) grows(samples []sample) bool {
	third := len(samples) / 3
	if third == 0 || t.Of == PerToken {
		return false
	}
	head, tail := samples[:third], samples[len(samples)-third:]
	return quantile(tail, t.Part, nil) > t.Limit.Seconds() && meanOf(tail) > 3*meanOf(head)
}

func meanOf(samples []sample) float64 {
	sum := 0.0
	for i := range samples {
		sum += samples[i].seconds
	}
	return sum / float64(len(samples))
}
