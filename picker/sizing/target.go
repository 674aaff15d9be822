package sizing

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrTarget is wrapped by the errors of ParseTarget.
var ErrTarget = errors.New("invalid target")

// Target is a limit that a share of the requests must meet. The zero value is no target. It
// implements pflag.Value.
type Target struct {
	Part    float64 // share of the requests, 0.5 to 0.999
	Seconds float64
}

// Default is the target of replicas without another one.
var Default = Target{Part: .9, Seconds: 2}

// ParseTarget reads a percentile from p50 to p99.9 and a limit, such as p90=2s.
func ParseTarget(s string) (Target, error) {
	name, limit, _ := strings.Cut(s, "=")
	digits, isPercentile := strings.CutPrefix(name, "p")
	part, err := strconv.ParseFloat(digits, 64)
	if !isPercentile || err != nil || !(part >= 50 && part <= 99.9) {
		return Target{}, fmt.Errorf("%w %q: want a percentile from p50 to p99.9 and a limit, such as p90=2s", ErrTarget, s)
	}
	d, err := time.ParseDuration(limit)
	if err != nil || d <= 0 {
		return Target{}, fmt.Errorf("%w %q: want a duration as its limit, such as p90=2s", ErrTarget, s)
	}
	return Target{Part: part / 100, Seconds: d.Seconds()}, nil
}

// Set implements pflag.Value. none is no target.
func (t *Target) Set(s string) (err error) {
	if *t = (Target{}); s != "none" {
		*t, err = ParseTarget(s)
	}
	return err
}

// Type implements pflag.Value.
func (t *Target) Type() string { return "target" }

// String returns the target in the form of ParseTarget.
func (t *Target) String() string {
	if *t == (Target{}) {
		return "none"
	}
	return t.Percentile() + "=" + time.Duration(math.Round(t.Seconds*1e9)).String()
}

// Percentile returns the share in the form p90.
func (t *Target) Percentile() string {
	return "p" + strconv.FormatFloat(math.Round(t.Part*1e4)/100, 'f', -1, 64)
}
