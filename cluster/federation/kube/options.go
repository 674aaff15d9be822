package kube

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Defaults of Options.
const (
	defaultDrain   = time.Minute
	defaultLease   = 5 * time.Second
	defaultExports = 128
	defaultForget  = time.Hour
	defaultGrace   = 10 * time.Second
	defaultPace    = 10 * time.Second
	defaultStagger = 3 * time.Second
	defaultSettle  = 50 * time.Millisecond
)

// Options configure a Controller. Config, View and Publish are required.
type Options struct {
	Config    kubeapi.Config
	Namespace string // namespace to manage; "": all, which needs a ClusterRole

	// Serves returns the pools that this endpoint picker serves, and why one cannot be exported (""
	// if it can). Entries of other pools are left alone.
	Serves func() map[Name]string
	// View returns the federation's state. Controller.Wake signals a change.
	View func() View
	// Publish receives the state that this cluster publishes to the others, whenever it changes.
	Publish func(Local)
	// Rank is this replica's index among the live replicas of its group, from 0; nil: there is only
	// one.
	Rank func() int

	Controller string        // name of our entries; "": DefaultController. Federations that share a cluster need different ones
	Group      Name          // pool of this group, noted at the imports that it creates; zero: a hub
	MaxExports int           // pools of one other cluster for which imports are created; 0: 128
	Lease      time.Duration // how long a member's statements are valid; 0: 5 s
	Drain      time.Duration // how long imports keep a withdrawn export; 0: a minute
	DropAfter  time.Duration // how long imports keep a silent cluster; 0: an hour
	Pace       time.Duration // initial delay before rewriting an overwritten entry; 0: 10 s
	Stagger    time.Duration // delay between the turns of replicas; 0: 3 s
	Grace      time.Duration // how long a permission must be missing before that is reported; 0: 10 s
	Settle     time.Duration // delay between a change and its effects; 0: 50 ms

	Agent      string // user agent in the API server's logs
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

var errSeams = errors.New("kube: options: Serves, View and Publish are required")

func (o *Options) complete() error {
	if o.Serves == nil || o.View == nil || o.Publish == nil {
		return errSeams
	}
	if o.Rank == nil {
		o.Rank = func() int { return 0 }
	}
	o.Controller = cmp.Or(o.Controller, DefaultController)
	o.MaxExports, o.Lease = cmp.Or(o.MaxExports, defaultExports), cmp.Or(o.Lease, defaultLease)
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	o.DropAfter = cmp.Or(o.DropAfter, defaultForget)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.Pace = cmp.Or(o.Pace, defaultPace)
	o.Stagger = cmp.Or(o.Stagger, defaultStagger)
	o.Settle = cmp.Or(o.Settle, defaultSettle)
	o.Agent = cmp.Or(o.Agent, "grapevine")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// group returns the name of the group's pool, or "".
func (o *Options) group() string {
	if o.Group == (Name{}) {
		return ""
	}
	return o.Group.String()
}
