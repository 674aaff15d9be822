package commands

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	objects "github.com/grapevine-epp/grapevine/cluster/federation/kube"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// hubStop limits how long the hub takes to stop after a signal.
const hubStop = 10 * time.Second

// newFederationHub maintains the objects of several clusters from one process.
func newFederationHub() *cobra.Command {
	var members, pools []string
	var drain time.Duration
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Maintain InferencePoolImports in several clusters",
		Long: `Maintains the objects of the multi-cluster proposal in the API servers of all members: for
each named pool with the annotation, an InferencePoolImport with its namespace and name in
every member, and the condition Exported. It transfers no load and no prefixes, and no
request passes through it. Two hubs can run at once, also with different pools. Replicas in
those clusters write entries of their own unless they run with --federation-objects none.`,
		Example: "  grapevine federation hub --member paris=paris.kubeconfig --member tokyo=tokyo.kubeconfig --pool default/llama",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := hubOptions(members, pools)
			if err != nil {
				return cli.UsageError{Err: err}
			}
			o.Drain, o.Log = drain, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			defer cli.ExitAfter(cmd.Context(), hubStop, o.Log)()
			hub, err := objects.OpenHub(o)
			if err != nil {
				return err
			}
			defer hub.Close()
			<-cmd.Context().Done()
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&members, "member", nil, "NAME=KUBECONFIG of a cluster (repeatable, two or more)")
	fl.StringArrayVar(&pools, "pool", nil, "NAMESPACE/NAME of a pool, exported if its annotation requests it (repeatable)")
	fl.DurationVar(&drain, "drain", time.Minute, "how long a withdrawn export stays in imports")
	return cmd
}

// hubOptions parses the members and pools.
func hubOptions(members, pools []string) (o objects.HubOptions, err error) {
	if len(members) < 2 || len(pools) == 0 {
		return o, errors.New("want at least two --member, and --pool")
	}
	o.Members, o.Agent = map[string]kubeapi.Config{}, "grapevine-hub"
	for _, m := range members {
		name, file, ok := strings.Cut(m, "=")
		if _, twice := o.Members[name]; !ok || name == "" || file == "" || twice {
			return o, fmt.Errorf("--member %q: want NAME=KUBECONFIG with unique names", m)
		}
		if o.Members[name], err = kubeapi.Kubeconfig(file); err != nil {
			return o, fmt.Errorf("--member %s: %w", name, err)
		}
	}
	for _, p := range pools {
		k, err := link.ParsePool(p)
		if err != nil {
			return o, fmt.Errorf("--pool %q: %w", p, err)
		}
		o.Pools = append(o.Pools, objects.Name{Namespace: k.Namespace, Name: k.Name})
	}
	o.Namespace = o.Pools[0].Namespace
	for _, p := range o.Pools {
		if p.Namespace != o.Pools[0].Namespace {
			o.Namespace = ""
		}
	}
	return o, nil
}
