package pools

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/admin"
)

// Status is the state of a replica with several pools.
type Status struct {
	Name    string       `json:"name"`
	Version string       `json:"version"`
	State   string       `json:"state"` // starting, ready, degraded, draining
	Reason  string       `json:"reason,omitempty"`
	UptimeS float64      `json:"uptime_s"`
	Pools   []PoolStatus `json:"pools"`
}

// PoolStatus is the state of one pool in short. Its whole status is at /pools/NAME/status.
type PoolStatus struct {
	Name      string `json:"name"`
	Port      int    `json:"port"`
	Address   string `json:"address,omitempty"` // of its ext_proc listener
	State     string `json:"state"`             // opening, invalid, starting, ready, degraded, draining
	Reason    string `json:"reason,omitempty"`
	Endpoints int    `json:"endpoints"`
	Problems  int    `json:"problems"` // without notices
}

// Status returns the state of the process and of its pools.
func (s *Server) Status() Status {
	st := Status{Name: s.o.Process.Name, Version: s.o.Process.Version, UptimeS: time.Since(s.o.Process.Started).Seconds(), Pools: []PoolStatus{}}
	var bad []string
	for _, p := range s.list() {
		one := p.status()
		st.Pools = append(st.Pools, one)
		if one.State != "ready" {
			bad = append(bad, one.Name+" is "+one.State)
		}
	}
	ready, _ := s.ready()
	problem := s.worstReason()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		st.State = "draining"
	case !ready:
		st.State, st.Reason = "starting", s.waitsFor()
	case len(bad) > 0 || problem != "":
		st.State, st.Reason = "degraded", problem
		if problem == "" {
			st.Reason = fmt.Sprintf("%d of %d pools are not ready: %s", len(bad), len(st.Pools), strings.Join(bad, ", "))
		}
	default:
		st.State = "ready"
	}
	return st
}

// worstReason describes the problem with the list of pools, "" if there is none.
func (s *Server) worstReason() string {
	s.mu.Lock()
	problem := s.problem
	s.mu.Unlock()
	if problem == "" && s.o.Finder != nil {
		problem = s.o.Finder.Problem()
	}
	return problem
}

// waitsFor describes why the process is not ready. The caller holds s.mu.
func (s *Server) waitsFor() string {
	switch {
	case !s.known:
		return "discovering pools"
	case len(s.pools) == 0:
		return "there is no pool to serve"
	case !s.gated:
		return "the pools are being opened"
	}
	return "no pool is ready"
}

// checks returns the readiness checks of the process.
func (s *Server) checks() []admin.Check {
	ready, gated := s.ready()
	s.mu.Lock()
	draining, why := s.draining, s.waitsFor()
	s.mu.Unlock()
	var list []string
	for _, p := range s.list() {
		if r, _ := p.ready(); !r {
			list = append(list, p.entry.Name)
		}
	}
	pools := admin.Check{Name: "pools", Ready: ready || draining}
	switch {
	case !pools.Ready:
		pools.Reason = why
	case len(list) > 0:
		pools.Reason = "not ready: " + strings.Join(list, ", ")
	}
	return []admin.Check{{Name: "serving", Ready: !draining}, {Name: "started", Ready: gated}, pools}
}

// page returns the pages of a pool.
func (s *Server) page(name string) (admin.Options, bool) {
	for _, p := range s.list() {
		if srv := p.server(); srv != nil && p.entry.Name == name {
			return srv.Pages(), true
		}
	}
	return admin.Options{}, false
}

// lines lists all pools for the status page.
func (s *Server) lines() (out []admin.PoolLine) {
	for _, p := range s.list() {
		st := p.status()
		out = append(out, admin.PoolLine{
			Name: st.Name, Address: st.Address, State: st.State, Reason: st.Reason, Endpoints: st.Endpoints, Problems: st.Problems, Open: st.Address != "",
		})
	}
	return out
}

var poolsDesc = prometheus.NewDesc("grapevine_pools", "Pools of a process that serves several, by state: opening, invalid, not_ready, ready.", []string{"state"}, nil)

// collector exports the number of pools.
type collector struct{ s *Server }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- poolsDesc }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	count := map[string]int{stateOpening: 0, stateInvalid: 0, "not_ready": 0, "ready": 0}
	for _, p := range c.s.list() {
		ready, _ := p.ready()
		switch {
		case ready:
			count["ready"]++
		case p.server() != nil:
			count["not_ready"]++
		case p.failure() != nil:
			count[stateInvalid]++
		default:
			count[stateOpening]++
		}
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(poolsDesc, prometheus.GaugeValue, float64(n), state)
	}
}
