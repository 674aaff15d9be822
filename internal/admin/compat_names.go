package admin

import "github.com/prometheus/client_golang/prometheus"

// Prefixes of names.
const (
	ours      = "llm_d_epp_"
	objective = "inference_objective_"
	pool      = "inference_pool_"
	extension = "inference_extension_"
)

// Labels.
var (
	requestLabels = []string{"model_name", "target_model_name", "fairness_id", "priority"}
	modelLabels   = []string{"model_name", "target_model_name"}
)

// Buckets of other pickers, on which dashboard quantiles depend.
var (
	durations = []float64{.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	perToken  = []float64{.0005, .00205, .005, .01, .02, .04, .06, .08, .1, .125, .15, .2, .3, .4, .5, .6, .8, 1, 2}
	scheduler = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}
	sizes     = prometheus.ExponentialBuckets(64, 2, 25)
	tokens    = append([]float64{1}, prometheus.ExponentialBuckets(8, 2, 18)...)
)

// twin is one metric under its two names.
type twin[T any] struct {
	newer, older T
}

func counters(name string, labels []string, older string, olderLabels []string, help string) twin[*prometheus.CounterVec] {
	one := func(name string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return twin[*prometheus.CounterVec]{one(ours+name, labels), one(older, olderLabels)}
}

func histograms(name string, labels []string, older string, buckets []float64, help string) twin[*prometheus.HistogramVec] {
	one := func(name string, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	olderLabels := modelLabels
	if len(labels) == 0 {
		olderLabels = nil
	}
	return twin[*prometheus.HistogramVec]{one(ours+name, labels), one(older, olderLabels)}
}
