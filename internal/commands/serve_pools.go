package commands

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/pools"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// poolsFlags are the flags of serve for several pools.
type poolsFlags struct {
	file string
}

func (f *poolsFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.file, "pools", "", "YAML file that lists several pools to serve, each on its own ext_proc port at the host of --listen; reloaded when it changes (default: one pool)")
}

// several reports whether this process serves several pools.
func (f *poolsFlags) several() bool { return f.file != "" }

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
	if err := f.kube.prepare(); err == nil {
		o.Source = f.kube.pool
	} else {
		log.Debug("no InferencePools: Kubernetes is not reached", "reason", err)
	}
	s, err := pools.Open(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}
