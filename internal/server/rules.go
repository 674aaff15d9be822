package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery/strict"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// loadConfig reads the configuration file, or returns what holds without one.
func loadConfig(path string) (*config.Config, error) {
	if path == "" {
		return config.Default(config.Options{}), nil
	}
	c, problems := config.Load(path, config.Options{})
	if len(problems) > 0 {
		return nil, strict.Problems(problems)
	}
	return c, nil
}

// reloads tells how reading the configuration again went.
type reloads struct {
	ok   prometheus.Gauge
	at   prometheus.Gauge
	hash *prometheus.GaugeVec
}

func newReloads(reg prometheus.Registerer) *reloads {
	r := &reloads{
		ok:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "grapevine_config_last_reload_successful", Help: "1 when the last reading of the configuration succeeded."}),
		at:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "grapevine_config_last_reload_success_timestamp_seconds", Help: "When the configuration in use was read."}),
		hash: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "grapevine_config_hash", Help: "1 for the hash of the configuration in use."}, []string{"hash"}),
	}
	reg.MustRegister(r.ok, r.at, r.hash)
	return r
}

func (r *reloads) done(c *config.Config, err error) {
	if err != nil {
		r.ok.Set(0)
		return
	}
	r.ok.Set(1)
	r.at.Set(float64(time.Now().Unix()))
	r.hash.Reset()
	r.hash.WithLabelValues(c.Hash()).Set(1)
}

// Reload reads configuration and models again; on error the old ones stay.
func (s *Server) Reload(context.Context) error {
	c, err := loadConfig(s.o.Config)
	s.reloads.done(c, err)
	if err != nil {
		return err
	}
	s.models.all.Reload()
	if err := s.scheduler.SetRules(c.Rules); err != nil {
		return err
	}
	s.config.Store(c)
	s.o.Log.Info("configuration read", "hash", c.Hash(), "notes", len(c.Notes))
	return nil
}

// sheds reports whether the configuration may refuse requests for saturation:
// then engine gauges must be as young as its detector wants them.
func sheds(r *picker.Rules) bool {
	for _, p := range r.Objectives {
		if p < 0 {
			return true
		}
	}
	return false
}

// scrapeOptions make gauges young enough for what the configuration does with them.
func (s *Server) scrapeOptions() scrape.Options {
	o := scrape.Options{Slow: s.o.ScrapeSlow, Fast: s.o.ScrapeFast, OnPage: s.onPage, Registerer: s.registry, Log: s.o.Log}
	m := s.config.Load().Metrics
	o.Scheme, o.Path, o.SkipVerify = m.Scheme, m.Path, m.SkipVerify
	o.Dialects = func() *scrape.Dialects { return s.config.Load().Metrics.Dialects }
	if c := s.config.Load(); sheds(c.Rules) && c.GaugeAge > 0 {
		o.Fast = c.GaugeAge / 2
		o.Demand = func(*picker.Endpoint) bool { return true }
	}
	return o
}
