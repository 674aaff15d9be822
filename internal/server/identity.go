package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// seed returns the seed of block keys that this process begins with: of the secret of
// the options where there is one, else one that only this process knows, until it takes
// over its group's.
func (s *Server) seed() (seed block.Seed) {
	if s.o.Secret != "" {
		return seedOf(s.o.Secret)
	}
	_, _ = rand.Read(seed[:]) // never fails
	return seed
}

// secret is what is compared with other replicas of how block keys are seeded.
func (s *Server) secret() uint64 {
	if s.o.Secret == "" {
		return facts.GroupSecret
	}
	return uint64(s.hasher.Root(block.Scope{}))
}

// openSeeds has this replica and its group agree on a seed, unless a secret says it.
func (s *Server) openSeeds(own block.Seed, group facts.Group) {
	if s.o.Secret != "" || !s.o.Cluster.enabled() {
		return
	}
	s.seeds = facts.NewSeeds(facts.SeedOptions{
		Own: own, Now: time.Now, Log: s.o.Log, Registry: s.registry,
		Settled: func() bool { return s.node.Phase() != cluster.Settling },
		Use: func(seed block.Seed) {
			s.share.Rekey(func() uint64 {
				s.hasher.Reseed(seed)
				return uint64(s.hasher.Root(block.Scope{}))
			})
		},
	})
	s.seeds.Join(group)
}

// seedOf turns the group's secret into the seed of block keys.
func seedOf(secret string) (seed block.Seed) {
	sum := sha256.Sum256([]byte("grapevine block keys\x00" + secret))
	copy(seed[:], sum[:])
	return seed
}

// soon is how long before its end a certificate is warned of.
const soon = 7 * 24 * time.Hour

// expiry tells when the certificate that proxies see ends, and warns once when that
// is near and once when it is over. It looks whenever metrics are read.
type expiry struct {
	conf *tls.Config
	log  *slog.Logger
	now  func() time.Time

	mu   sync.Mutex
	said string // what was warned of
}

var expiryDesc = prometheus.NewDesc("grapevine_certificate_expiry_timestamp_seconds", "When the certificate of the ext_proc and xDS listeners expires.", nil, nil)

// watchCertificate follows the certificate of the listeners; nil means plaintext.
func (s *Server) watchCertificate(conf *tls.Config) {
	if conf == nil {
		return
	}
	e := &expiry{conf: conf, log: s.o.Log, now: time.Now}
	e.look()
	s.registry.MustRegister(e)
}

// Describe implements prometheus.Collector.
func (e *expiry) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (e *expiry) Collect(ch chan<- prometheus.Metric) {
	if end := e.look(); !end.IsZero() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(end.Unix()))
	}
}

// look returns when the certificate in use ends, zero when there is none.
func (e *expiry) look() time.Time {
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
	e.mu.Lock()
	defer e.mu.Unlock()
	left, say := leaf.NotAfter.Sub(e.now()), ""
	switch {
	case left <= 0:
		say = "certificate has expired: " + leaf.NotAfter.String()
	case left < soon:
		say = "certificate expires soon: " + leaf.NotAfter.String()
	}
	if say != "" && say != e.said {
		level := slog.LevelWarn
		if left <= 0 {
			level = slog.LevelError
		}
		e.log.Log(context.Background(), level, "certificate of the ext_proc listener ends", "expired", left <= 0, "not_after", leaf.NotAfter)
	}
	e.said = say
	return leaf.NotAfter
}
