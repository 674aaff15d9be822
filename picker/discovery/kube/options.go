package kube

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// maxPorts is how many target ports a pool has at most.
const maxPorts = 8

// Defaults of Options.
const (
	defaultSettle = 100 * time.Millisecond
	defaultGrace  = 10 * time.Second
)

// Options open a Source. Config, Sink.Tell and either Pool or Selector with
// Ports are required.
type Options struct {
	Config    kubeapi.Config
	Namespace string // of pool and pods; "": that of Config, else default

	Pool  string // name of the InferencePool
	Group string // of the pool; "": v1 or, where that is not to be had, the older one

	Selector string   // label selector of pods, instead of a pool
	Ports    []uint16 // target ports, with Selector

	Events endpoint.Events // where pods publish that do not say
	Sink   discovery.Sink
	Self   Reference // the pod that this process is; zero: unknown
	Agent  string    // names us in the server's logs

	Settle time.Duration // between two tellings; 0 means 100 ms
	Grace  time.Duration // before a deleted pool's endpoints go; 0 means 10 s
	// LookAgain is between two looks at a pool that objectives name and that is not
	// there; 0 means 1 min.
	LookAgain time.Duration
}

var (
	errNoTell = errors.New("kube: options: Sink.Tell is required")
	errPool   = errors.New("kube: options: either a pool's name or a selector is required")
	errPorts  = fmt.Errorf("kube: options: a selector needs 1 to %d target ports", maxPorts)
	errGroup  = fmt.Errorf("kube: options: the pool's group must be %s or %s", GroupPool, GroupPoolOld)
)

func (o *Options) complete() error {
	switch {
	case o.Sink.Update == nil:
		return errNoTell
	case (o.Pool == "") == (o.Selector == ""):
		return errPool
	case o.Selector != "" && (len(o.Ports) == 0 || len(o.Ports) > maxPorts || slices.Contains(o.Ports, 0)):
		return errPorts
	case !slices.Contains([]string{"", GroupPool, GroupPoolOld}, o.Group):
		return errGroup
	}
	o.Namespace = cmp.Or(o.Namespace, o.Config.Namespace, "default")
	o.Settle = cmp.Or(o.Settle, defaultSettle)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.LookAgain = cmp.Or(o.LookAgain, time.Minute)
	o.Agent = cmp.Or(o.Agent, "grapevine")
	if o.Sink.Log == nil {
		o.Sink.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// from names what is followed.
func (o *Options) from() string {
	if o.Pool != "" {
		return kindPool + " " + o.Namespace + "/" + o.Pool
	}
	return "pods " + o.Selector + " in " + o.Namespace
}

// ParsePorts reads target ports, separated by commas.
func ParsePorts(list []string) (out []uint16, err error) {
	for _, s := range list {
		a, err := netip.ParseAddrPort("127.0.0.1:" + s)
		if err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("%q is not a port", s)
		}
		if slices.Contains(out, a.Port()) {
			return nil, fmt.Errorf("port %s is given twice", s)
		}
		out = append(out, a.Port())
	}
	if len(out) > maxPorts {
		return nil, fmt.Errorf("%d ports: want at most %d", len(out), maxPorts)
	}
	return out, nil
}
