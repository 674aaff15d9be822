package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// stage is how far a replica has come between its start and its end.
type stage struct {
	settled  atomic.Bool // the state has settled once, or ReadyTimeout has passed
	draining atomic.Bool
}

// condition decides whether a replica is ready, and describes its state. It is safe for concurrent
// use.
type condition struct {
	*stage
	Started   time.Time
	Timeout   time.Duration // from Started; then the replica is ready even if degraded
	Federated bool          // remote clusters may answer requests
	Pool      *endpoint.Pool
	Lists     *endpointLists
	Models    *prefix.Models
	Files     *modelFinder
	Node      *cluster.Node
	Knowledge *cacheKnowledge
	Pace      *ownPace
}

// state returns the replica's state and, unless it is ready, the reason.
func (c *condition) state() (state, reason string) {
	eps := c.Pool.Snapshot().Endpoints
	switch pending := c.Knowledge.pending(); {
	case c.draining.Load():
		return "draining", ""
	case len(eps) == 0:
		return "starting", c.Lists.problem()
	case c.undecodable() != "":
		return "starting", c.undecodable()
	case !c.settled.Load():
		return "starting", c.startingReason(pending)
	case poolProblem(c.Pool) != "":
		return "degraded", poolProblem(c.Pool)
	case pending > 0:
		return "degraded", c.startingReason(pending)
	case c.Lists.source != nil && !c.Lists.ok():
		return "degraded", c.Lists.problem()
	}
	if why := c.Knowledge.wrongPredictions(); why != "" {
		return "degraded", why
	}
	if why := unknownRole(eps); why != "" {
		return "degraded", why
	}
	return "ready", ""
}

// undecodable returns noDecode of the pool, unless remote clusters may answer its requests.
func (c *condition) undecodable() string {
	if c.Federated {
		return ""
	}
	return noDecode(c.Pool.Snapshot().Endpoints)
}

// startingReason describes the condition that an unsettled replica waits for.
func (c *condition) startingReason(pending int) string {
	switch {
	case !c.Files.ready():
		return "loading models"
	case c.Node.Phase() == cluster.Settling:
		return "joining the other replicas"
	case pending == 0:
		return "the next check of readiness is due within 20 ms"
	}
	return fmt.Sprintf("%d of %d endpoints are not exact yet", pending, len(c.Pool.Snapshot().Endpoints))
}

// checks returns the readiness checks.
func (c *condition) checks() []admin.Check {
	n := len(c.Pool.Snapshot().Endpoints)
	list := []admin.Check{
		{Name: "serving", Ready: !c.draining.Load()},
		{Name: "endpoints", Ready: n > 0, Reason: c.Lists.describe(n)},
		{Name: "models", Ready: c.Files.ready(), Reason: c.Files.withoutFiles()},
		{Name: "knowledge", Ready: c.settled.Load()},
		{Name: "cluster", Ready: c.Node.Phase() != cluster.Settling, Reason: c.Node.Status().Health.Line},
	}
	if why := c.undecodable(); why != "" {
		list[1].Ready, list[1].Reason = false, why
	}
	if why := c.Pace.slow(); why != "" {
		list[0].Ready, list[0].Reason = false, why
	}
	if p := c.Knowledge.pending(); p > 0 {
		list[3].Reason = fmt.Sprintf("%d of %d endpoints are not exact yet", p, n)
	} else if why := c.Knowledge.wrongPredictions(); why != "" {
		list[3].Reason = why
	}
	return list
}

// ready reports whether requests are accepted.
func (c *condition) ready() bool {
	return c.settled.Load() && !c.draining.Load() && len(c.Pool.Snapshot().Endpoints) > 0 && c.undecodable() == "" && c.Pace.slow() == ""
}

// empty reports whether the list of endpoints was read successfully and is empty.
func (c *condition) empty() bool { return !c.draining.Load() && c.Lists.empty() }

// overdue reports whether the timeout has passed.
func (c *condition) overdue() bool { return time.Since(c.Started) > c.Timeout }

// unready returns why other clusters must not send requests here, "" if they may. A draining replica
// answers them until it has left the federation.
func (c *condition) unready() string {
	if c.ready() || c.empty() || c.draining.Load() && c.settled.Load() {
		return ""
	}
	return "this replica is not ready"
}

// readyEvery is how often readiness is checked once the state has settled. A stalled loop and a drain end
// it at once.
const readyEvery = 500 * time.Millisecond

// watch sets the gRPC health state to ready once the state has settled, or the timeout has passed,
// until ctx ends. It calls changed when models have been loaded, because the vocabularies of event
// streams may have changed.
func (c *condition) watch(ctx context.Context, readiness *listen.Readiness, changed func(), watch *watchdog.Loop, log *slog.Logger) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var version int64
	for {
		watch.Working()
		if v := c.Models.Version(); v != version {
			version = v
			changed()
		}
		if !c.settled.Load() {
			c.settle(log)
		}
		c.Pool.Expire()
		readiness.Set(c.ready())
		tick.Reset(20 * time.Millisecond)
		if c.settled.Load() {
			tick.Reset(ticks.Until(readyEvery))
		}
		watch.Waiting()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// settle notes whether the state has settled, or the timeout has passed.
func (c *condition) settle(log *slog.Logger) {
	over := c.overdue()
	models, phase, pending := c.Files.ready(), c.Node.Phase(), c.Knowledge.pending()
	known := models && phase != cluster.Settling && pending == 0
	if len(c.Pool.Snapshot().Endpoints) == 0 || !known && !over {
		return
	}
	c.settled.Store(true)
	if !known {
		log.Warn("ready before the prefix index is complete", "endpoints_pending", pending, "models_read", models, "cluster", phase.String())
	}
}
