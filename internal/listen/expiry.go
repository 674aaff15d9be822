package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// soon is how long before its expiry a certificate causes a warning.
const soon = 7 * 24 * time.Hour

// Expiry reports when the server certificate expires, and warns once shortly before and once after.
// It checks on every scrape.
type Expiry struct {
	conf *tls.Config
	log  *slog.Logger
	now  func() time.Time

	mu          sync.Mutex
	lastWarning string // last warning
}

var expiryDesc = prometheus.NewDesc("grapevine_certificate_expiry_timestamp_seconds", "When the certificate of the ext_proc and xDS listeners expires.", nil, nil)

// WatchExpiry returns a collector for the certificate's expiry. It also warns immediately if a
// warning is due.
func WatchExpiry(conf *tls.Config, log *slog.Logger) *Expiry {
	e := &Expiry{conf: conf, log: log, now: time.Now}
	e.look()
	return e
}

// Describe implements prometheus.Collector.
func (e *Expiry) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (e *Expiry) Collect(ch chan<- prometheus.Metric) {
	if end := e.look(); !end.IsZero() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(end.Unix()))
	}
}

// Warning describes the certificate's expiry if it is past or less than a week away; "" otherwise.
func (e *Expiry) Warning() string {
	if e == nil {
		return ""
	}
	e.look()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastWarning
}

// look returns when the current certificate expires, or zero without one.
func (e *Expiry) look() time.Time {
	var cert *tls.Certificate
	if len(e.conf.Certificates) > 0 {
		cert = &e.conf.Certificates[0]
	} else if e.conf.GetCertificate != nil {
		cert, _ = e.conf.GetCertificate(nil)
	}
	if cert == nil || len(cert.Certificate) == 0 {
		return time.Time{}
	}
	leaf := cert.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return time.Time{}
		}
	}
	left, say := leaf.NotAfter.Sub(e.now()), ""
	switch {
	case left <= 0:
		say = "certificate has expired: " + leaf.NotAfter.String()
	case left < soon:
		say = "certificate expires soon: " + leaf.NotAfter.String()
	}
	e.mu.Lock()
	changed := say != e.lastWarning
	e.lastWarning = say
	e.mu.Unlock()
	if say != "" && changed {
		level := slog.LevelWarn
		if left <= 0 {
			level = slog.LevelError
		}
		e.log.Log(context.Background(), level, "certificate of the ext_proc listener ends", "expired", left <= 0, "not_after", leaf.NotAfter)
	}
	return leaf.NotAfter
}
