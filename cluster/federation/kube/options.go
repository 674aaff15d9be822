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
	defaultForget  = time.Hour
	defaultPace    = 10 * time.Second
	defaultStagger = 3 * time.Second
	defaultSettle  = 50 * time.Millisecond
)

// Options open a Controller. Config, View and Tell are required.
type Options struct {
	Config    kubeapi.Config
	Namespace string // that is looked after; "": all, which takes a ClusterRole

	// Serves names the pools whose endpoint picker this is, and why one of them
	// cannot be exported, "" for it can. Other pools' entries are left alone.
	Serves func() map[Name]string
	// View returns what the federation knows; Controller.Wake says that it changed.
	View func() View
	// Tell takes what this cluster is to tell the others, when that changed.
	Publish func(Local)
	// Turn is this replica's place among those of its group that live, from 0 on;
	// nil: it is alone.
	Rank func() int

	Controller string        // names our entries; "": DefaultController. Federations that share a cluster want different ones
	Drain      time.Duration // for which a withdrawn export is kept in imports; 0: a minute
	DropAfter  time.Duration // after which a silent cluster is dropped from imports; 0: an hour
	Pace       time.Duration // before an entry that somebody overwrote is written again, at first; 0: 10 s
	Stagger    time.Duration // between the turns of replicas; 0: 3 s
	Settle     time.Duration // between a change and what is made of it; 0: 50 ms

	Agent      string // names us in the server's logs
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

var errSeams = errors.New("kube: options: Serves, View and Tell are required")

func (o *Options) complete() error {
	if o.Serves == nil || o.View == nil || o.Publish == nil {
		return errSeams
	}
	if o.Rank == nil {
		o.Rank = func() int { return 0 }
	}
	o.Controller = cmp.Or(o.Controller, DefaultController)
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	o.DropAfter = cmp.Or(o.DropAfter, defaultForget)
	o.Pace = cmp.Or(o.Pace, defaultPace)
	o.Stagger = cmp.Or(o.Stagger, defaultStagger)
	o.Settle = cmp.Or(o.Settle, defaultSettle)
	o.Agent = cmp.Or(o.Agent, "grapevine")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
