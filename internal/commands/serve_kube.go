package commands

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/discovery/kube"
)

// kubeFlags are the flags of serve for endpoints in Kubernetes.
type kubeFlags struct {
	version string

	o          kube.Options
	kubeconfig string
	ports      []string
	peers      string // Service of the replicas, NAME or NAMESPACE/NAME
}

// kubeNames are the flags that name a pool.
var kubeNames = []string{"pool-name", "pool-namespace", "pool-group", "endpoint-selector", "endpoint-target-ports"}

func (k *kubeFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&k.o.Pool, "pool-name", "", "Kubernetes: InferencePool whose pods are the endpoints, instead of --endpoints")
	fl.StringVar(&k.o.Namespace, "pool-namespace", "", "Kubernetes: namespace of pool and pods (default: $NAMESPACE, or this pod's namespace)")
	fl.StringVar(&k.o.Group, "pool-group", "", "Kubernetes: API group of the pool (default: "+kube.GroupPool+", or the older group if only that is installed)")
	fl.DurationVar(&k.o.Guard, "pool-guard", 5*time.Minute, "Kubernetes: how long a change of the pool's selector that leaves less than half of the endpoints is held; 0 applies it at once")
	fl.StringVar(&k.o.Selector, "endpoint-selector", "", "Kubernetes: label selector of the endpoints' pods, instead of --pool-name")
	fl.StringSliceVar(&k.ports, "endpoint-target-ports", nil, "Kubernetes: ports of these pods, at most 8, each one an endpoint")
	fl.StringVar(&k.kubeconfig, "kubeconfig", "", "Kubernetes: kubeconfig file (default: this pod's service account, or $KUBECONFIG)")
	fl.StringVar(&k.o.IPFamily, "pod-ip-family", "", "Kubernetes: preferred address of dual-stack pods, ipv4 or ipv6 (default: status.podIP)")
	fl.IntVar(&k.o.Events.Port, "pod-events-port", 0, "Kubernetes: port of KV-cache events of pods without the annotation; 0 asks the engine")
	fl.IntVar(&k.o.Events.ReplayPort, "pod-replay-port", 0, "Kubernetes: replay port of these pods; 0 for none")
	fl.StringVar(&k.o.Events.Topic, "pod-events-topic", "", "Kubernetes: topic prefix of the subscription to these pods")
}

// source returns the Kubernetes source of endpoints, nil without such flags.
func (k *kubeFlags) source(given func(string) bool, endpoints string) (discovery.Opener, error) {
	if k.o.Pool == "" && k.o.Selector == "" {
		for _, name := range kubeNames {
			if given(name) {
				return nil, errors.New("--" + name + " requires --pool-name or --endpoint-selector")
			}
		}
		return nil, nil
	}
	switch {
	case endpoints != "":
		return nil, errors.New("--endpoints and --pool-name or --endpoint-selector cannot be used together")
	case k.o.Pool != "" && k.o.Selector != "":
		return nil, errors.New("--pool-name and --endpoint-selector cannot be used together")
	case k.o.Selector != "" && len(k.ports) == 0:
		return nil, errors.New("--endpoint-selector requires --endpoint-target-ports")
	case k.o.Pool != "" && len(k.ports) > 0:
		return nil, errors.New("--endpoint-target-ports requires --endpoint-selector: a pool defines its own ports")
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	if err := k.prepare(); err != nil {
		return nil, err
	}
	return opener(k.o), nil
}

// pool returns the source of the endpoints of one of several InferencePools.
func (k *kubeFlags) pool(name string) (discovery.Opener, error) {
	o := k.o
	o.Pool = name
	return opener(o), nil
}

// opener returns a source of endpoints.
func opener(o kube.Options) discovery.Opener {
	return func(sink discovery.Sink) (discovery.Source, error) {
		o.Sink = sink
		s, err := kube.Open(o)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

// check checks the flags that are common to all sources.
func (k *kubeFlags) check() (err error) {
	if k.o.Events.Port < 0 || k.o.Events.Port > 65535 || k.o.Events.ReplayPort < 0 || k.o.Events.ReplayPort > 65535 {
		return errors.New("--pod-events-port, --pod-replay-port: want a port number")
	}
	if k.o.Guard < 0 {
		return errors.New("--pool-guard: must not be negative")
	}
	if f := k.o.IPFamily; f != "" && f != kube.FamilyIPv4 && f != kube.FamilyIPv6 {
		return errors.New("--pod-ip-family: want ipv4 or ipv6, not " + strconv.Quote(f))
	}
	if k.o.Ports, err = kube.ParsePorts(k.ports); err != nil {
		return errors.New("--endpoint-target-ports: " + err.Error())
	}
	if k.o.Events.Port > 0 {
		k.o.Events.Ranks = 1
	}
	return nil
}

// prepare finds the API server and this process's place in the cluster.
func (k *kubeFlags) prepare() (err error) {
	if k.o.Config, err = kubeapi.Find(k.kubeconfig); err != nil {
		return err
	}
	k.o.Namespace = cmp.Or(k.o.Namespace, os.Getenv("NAMESPACE"))
	if pod := os.Getenv("POD_NAME"); pod != "" {
		k.o.Self = kube.Reference{APIVersion: "v1", Kind: "Pod", Name: pod, Namespace: cmp.Or(k.o.Config.Namespace, k.o.Namespace), UID: os.Getenv("POD_UID")}
	}
	k.o.Agent = "grapevine/" + k.version
	return nil
}

// findPeers finds the group's members in the EndpointSlices of a Service, if a flag names one,
// until the returned function is called.
func (k *kubeFlags) findPeers(c *server.ClusterOptions, log *slog.Logger) (end func(), err error) {
	if k.peers == "" {
		return func() {}, nil
	}
	o := kubeapi.MembersOptions{
		Service: k.peers, PortName: "gossip", Port: gossip.DefaultPort, Self: os.Getenv("POD_NAME"), Agent: "grapevine/" + k.version, Log: log,
	}
	if namespace, name, both := strings.Cut(k.peers, "/"); both {
		o.Namespace, o.Service = namespace, name
	}
	host := c.Advertise
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	o.Like, _ = netip.ParseAddr(host) // a host name leaves the family open
	config, err := kubeapi.Find(k.kubeconfig)
	if err != nil {
		return nil, err
	}
	members, err := kubeapi.FollowMembers(config, o)
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("--cluster-peers-service: %w", err)}
	}
	c.Found, c.Moved, c.MissingRights = members.Addresses, members.Changed(), members.MissingRights
	return members.Close, nil
}
