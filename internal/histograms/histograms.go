package histograms

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Native buckets are at most 10% wider than the one before. Their number is bounded; beyond it they become wider,
// at most once an hour.
const (
	factor     = 1.1
	mostNative = 100
	resetAfter = time.Hour
)

// Both adds a native form to the options of a histogram with fixed buckets.
func Both(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber, o.NativeHistogramMinResetDuration = factor, mostNative, resetAfter
	return o
}
