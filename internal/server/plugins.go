package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/config"
)

// failingFor is how long after a failed call a plugin is reported as failing.
const failingFor = time.Minute

// PluginStatus describes a plugin that runs code in another language.
type PluginStatus struct {
	Name     string            `json:"name"`
	Calls    uint64            `json:"calls"`
	Failures map[string]uint64 `json:"failures,omitempty"` // by reason
	Failing  string            `json:"failing,omitempty"`  // why calls fail, if they failed recently
}

// pluginStatus returns the status of the plugins of c that run code in another language.
func pluginStatus(c *config.Config, now time.Time) (list []PluginStatus) {
	for _, s := range c.Sandboxes {
		r := s.Report()
		st := PluginStatus{Name: s.Name, Calls: r.Calls, Failures: map[string]uint64{}}
		for reason, n := range r.Failures {
			if n > 0 {
				st.Failures[reason] = n
			}
		}
		if paused := !r.PausedUntil.IsZero(); paused || r.LastFailure != "" && now.Sub(r.FailedAt) < failingFor {
			st.Failing = r.LastFailure
			if left := r.PausedUntil.Sub(now); paused && left > 0 {
				st.Failing += fmt.Sprintf(" (calls pause for %.0f s)", left.Seconds())
			}
		}
		list = append(list, st)
	}
	return list
}

// pluginCollector exports the calls of plugins that run code in another language.
type pluginCollector struct {
	config                   *configuration
	calls, failures, seconds *prometheus.Desc
}

func newPluginCollector(c *configuration) *pluginCollector {
	return &pluginCollector{
		config:   c,
		calls:    prometheus.NewDesc("grapevine_plugin_calls_total", "Calls of WebAssembly plugins that ran.", []string{"plugin"}, nil),
		failures: prometheus.NewDesc("grapevine_plugin_failures_total", "Calls of WebAssembly plugins without a valid result, by reason: steps, trap, refused, result, start, busy or paused.", []string{"plugin", "reason"}, nil),
		seconds:  prometheus.NewDesc("grapevine_plugin_seconds", "Time of a call of a WebAssembly plugin, for all candidates of a decision.", []string{"plugin"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *pluginCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.calls, c.failures, c.seconds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *pluginCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.config.current().Sandboxes {
		r := s.Report()
		ch <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(r.Calls), s.Name)
		for reason, n := range r.Failures {
			ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(n), s.Name, reason)
		}
		ch <- prometheus.MustNewConstHistogram(c.seconds, r.Calls, r.Seconds, r.Buckets, s.Name)
	}
}
