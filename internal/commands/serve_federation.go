package commands

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	objects "github.com/grapevine-epp/grapevine/cluster/federation/kube"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/picker/discovery/kube"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
)

// federationFlags are the flags of serve that join it to a federation.
type federationFlags struct {
	config, pool, objects string
}

func (f *federationFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.config, "federation-config", "", "file that describes the other clusters and the imported and exported pools (default: none)")
	fl.StringVar(&f.pool, "federation-pool", "", "NAMESPACE/NAME of this replica's pool in that file (default: --pool-name, or the only exported pool)")
	fl.StringVar(&f.objects, "federation-objects", "", "Kubernetes: InferencePoolImports to maintain: namespace (of the pool), all or none; unless none, the pool's annotation decides about its export (default: namespace with --pool-name, else none)")
}

// complete fills the options of the federation, if there is one.
func (f *federationFlags) complete(o *multicluster.Options, k *kubeFlags) error {
	if f.config == "" {
		if f.pool != "" || f.objects != "" {
			return errors.New("--federation-pool and --federation-objects require --federation-config")
		}
		return nil
	}
	c, err := link.ReadConfig(f.config)
	if err != nil {
		return err
	}
	name := f.pool
	switch {
	case name != "":
	case k.o.Pool != "":
		name = cmp.Or(k.o.Namespace, k.o.Config.Namespace, "default") + "/" + k.o.Pool
	case len(c.Exports) == 1:
		name = c.Exports[0].Pool
	case c.Standalone():
		name = "default/pool" // not exported
	default:
		return fmt.Errorf("--federation-pool is required: %s exports %d pools", f.config, len(c.Exports))
	}
	pool, err := link.ParsePool(name)
	if err != nil {
		return fmt.Errorf("--federation-pool: %w", err)
	}
	o.Link = c
	o.Use.Self, o.Use.Region, o.Use.Pool = c.Cluster, c.Region, pool
	o.Use.Use, o.Use.Mode = remotecluster.Use(c.Use.Requests), remotecluster.Mode(c.Use.Mode)
	o.Use.Rules = remotecluster.Rules{Default: c.Use.Allow, Objectives: c.Use.Objectives}
	o.Use.Egress, o.Use.Regions = c.Use.Egress, c.Regions()
	return f.keep(o, k)
}

// keep sets up the maintenance of the federation's Kubernetes objects.
func (f *federationFlags) keep(o *multicluster.Options, k *kubeFlags) error {
	scope := f.objects
	if scope == "" && k.o.Pool != "" && !o.Link.Standalone() {
		scope = "namespace"
	}
	switch {
	case scope == "" || scope == "none":
		return nil
	case scope != "namespace" && scope != "all":
		return fmt.Errorf("--federation-objects %q: want namespace, all or none", scope)
	case k.o.Pool == "":
		return errors.New("--federation-objects requires --pool-name")
	case k.o.Group == kube.GroupPoolOld:
		return errors.New("--federation-objects: v1alpha2 pools cannot be exported: want none")
	}
	o.Objects = &objects.Options{Config: k.o.Config, Agent: k.o.Agent}
	if scope == "namespace" {
		o.Objects.Namespace = o.Use.Pool.Namespace
	}
	return nil
}
