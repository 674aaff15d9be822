package server

import (
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/budget"
)

// Shared are the parts of a process that serves several pools. They belong to the process: a Server
// neither opens nor closes them.
type Shared struct {
	Pool   string         // name of this server's pool
	Self   cluster.Member // of the process
	Bus    cluster.Bus    // of this pool; nil without a group
	Budget *budget.Budget // of this pool; nil: unlimited
	Files  int            // file descriptors for this pool's connections
}

// OpenBus returns the transport to the other replicas, for a process with several pools. limit
// bounds a listener's connections.
func (c *ClusterOptions) OpenBus(self cluster.Member, limit func(net.Listener) net.Listener, log *slog.Logger) (cluster.Bus, error) {
	return c.bus(self, limit, log)
}

// Enabled reports whether this replica is in a group.
func (c *ClusterOptions) Enabled() bool { return c.enabled() }

// Pages returns the pages of this server's pool. They are served by the process's administration
// listener.
func (s *Server) Pages() admin.Options { return s.pages() }

// Gatherer returns the metrics of this server.
func (s *Server) Gatherer() prometheus.Gatherer { return s.registry }

// Stalled returns the names of stalled loops.
func (s *Server) Stalled() []string { return s.dog.Stalled() }

// Ready reports whether requests are accepted, and started whether the replica need not wait any
// longer for this pool before it serves others.
func (s *Server) Ready() (ready, started bool) {
	c := s.condition
	return c.ready(), c.settled.Load() || c.empty() || c.overdue()
}

// Defaults sets the defaults of a process that serves several pools.
func (o *Options) Defaults() error {
	p := *o
	p.Endpoints = "pools" // each pool has its own
	if err := p.complete(); err != nil {
		return err
	}
	p.Endpoints = o.Endpoints
	*o = p
	return nil
}

// Levels returns the levels of the log, or nil if they cannot be changed.
func (o *Options) Levels() admin.LogLevels {
	if o.LogWriter == nil || o.LogWriter.Levels() == nil {
		return nil
	}
	return o.LogWriter.Levels()
}
