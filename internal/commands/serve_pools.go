package commands

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/pools"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/discovery/kube"
)

// poolsFlags are the flags of serve for several pools.
type poolsFlags struct {
	file, service string
}

func (f *poolsFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.file, "pools", "", "YAML file that lists several pools to serve, each on its own ext_proc port at the host of --listen; reloaded when it changes (default: one pool)")
	fl.StringVar(&f.service, "pools-service", "", "Kubernetes: serve all InferencePools of the namespace whose endpointPickerRef names this Service, each on the port that it names; a pool's entry in --pools changes its settings")
}

// several reports whether this process serves several pools.
func (f *poolsFlags) several() bool { return f.file != "" || f.service != "" }

// onlyOne are flags that belong to one pool, or that cannot be used with several.
var onlyOne = []string{
	"endpoints", "pool-name", "endpoint-selector", "endpoint-target-ports", "model", "model-alias", "model-adapter", "xds-listen", "xds-listener", "advertise",
	"federation-config", "federation-pool", "federation-objects", "metrics-compat", "metrics-pool", "pick-listen", "pick-ends", "events-listen", "events-allow", "flight-trace",
}

// check refuses flags that cannot be used with several pools.
func (f *poolsFlags) check(given func(string) bool) error {
	for _, name := range onlyOne {
		if given(name) {
			return fmt.Errorf("--%s cannot be used with several pools: see the fields of the pools file", name)
		}
	}
	return nil
}

// finder finds the pools of a Service.
type finder struct{ *kube.PickedPools }

// Pools implements pools.Finder.
func (f finder) Pools() (out []pools.Found, known bool) {
	list, known := f.PickedPools.Pools()
	for _, p := range list {
		out = append(out, pools.Found(p))
	}
	return out, known
}

// replica is a running server of one pool or of several.
type replica interface {
	Reload(context.Context) error
	SetKeys(keys [][]byte) error
	Drain(context.Context)
	Stop(context.Context) error
}

// open starts the replica.
func (f *serveFlags) open(log *slog.Logger) (replica, error) {
	if !f.pools.several() {
		s, err := server.Open(f.o) // a nil *Server must not become a replica
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	o := pools.Options{Process: f.o, File: f.pools.file}
	switch err := f.kube.prepare(); {
	case err == nil:
		o.Source = f.kube.pool
	case f.pools.service != "":
		return nil, fmt.Errorf("--pools-service: %w", err)
	default:
		log.Debug("no InferencePools: Kubernetes is not configured", "reason", err)
	}
	if f.pools.service != "" {
		found, err := kube.FollowPicked(kube.PickedOptions{
			Config: f.kube.o.Config, Namespace: f.kube.o.Namespace, Service: f.pools.service, Group: f.kube.o.Group, Agent: f.kube.o.Agent, Log: log,
		})
		if err != nil {
			return nil, fmt.Errorf("--pools-service: %w", err)
		}
		o.Finder = finder{found}
	}
	s, err := pools.Open(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}
