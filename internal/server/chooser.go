package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// chooserOptions are the parts that a chooser uses.
type chooserOptions struct {
	scheduler  request.Chooser
	pool       *endpoint.Pool
	prefixes   *prefix.Matcher
	signer     *signed.Signer // nil: targets are not signed
	recorder   *recording.Recorder
	federated  bool                       // this replica is in a federation of clusters
	decisionID func(number uint64) string // nil: answers have no decision header
	log        *slog.Logger
}

// chooser wraps the scheduler with the server's own additions to a decision. It is safe for concurrent
// use.
type chooser struct {
	chooserOptions
	compat           *admin.Compat // nil: metrics of other pickers are not served
	decided          atomic.Uint64 // decisions
	warnNoFederation sync.Once     // logs once when a request selects clusters but federation is off
}

// Choose implements request.Chooser.
func (c *chooser) Choose(ctx context.Context, r *request.Request) (*request.Decision, error) {
	start := time.Now()
	d, err := c.scheduler.Choose(ctx, r)
	if r.Clusters != "" && !c.federated {
		c.warnNoFederation.Do(func() {
			c.log.Warn("requests select clusters, but this replica has no cluster name configured, so it serves them locally", "header", request.HeaderClusters, "want", "cluster in a --federation-config")
		})
	}
	if err != nil {
		if c.compat != nil {
			c.compat.Refused(r, err, time.Since(start))
		}
		return d, err
	}
	c.decided.Add(1)
	ep := c.pool.Snapshot().Lookup(d.Endpoints[0])
	if ep != nil {
		d.BodyExtra += c.prefixes.Report(r, ep)
	}
	if c.compat != nil {
		c.compat.Watch(r, d, ep, start)
	}
	d.SetHeaders = c.signer.Append(d.SetHeaders)
	if c.decisionID != nil && d.Number > 0 {
		d.AnswerHeaders = append(slices.Clip(d.AnswerHeaders), request.HeaderSet{Name: request.HeaderDecision, Value: c.decisionID(d.Number)})
	}
	c.recorder.Attach(d, r)
	return d, nil
}
