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

// maxPorts is the maximum number of a pool's target ports.
const maxPorts = 8

// Defaults of Options.
const (
	defaultSettle = 100 * time.Millisecond
	defaultGrace  = 10 * time.Second
)

// Options configure a Source. Config, Sink.Update and either Pool or Selector with Ports are
// required.
type Options struct {
	Config    kubeapi.Config
	Namespace string // of pool and pods; "": from Config, else default

	Pool  string // name of the InferencePool
	Group string // of the pool; "": v1, or the older one if that is not available

	Selector string   // label selector for pods, instead of a pool
	Ports    []uint16 // target ports, with Selector

	IPFamily string // preferred address of dual-stack pods: FamilyIPv4 or FamilyIPv6; "": status.podIP

	Events endpoint.Events // default for pods without event settings
	Sink   discovery.Sink
	Self   Reference // this process's pod; zero: unknown
	Agent  string    // user agent in the server's logs

	Settle time.Duration // minimum interval between updates; 0 means 100 ms
	Grace  time.Duration // before a deleted pool's endpoints are removed; 0 means 10 s
	// Guard is the hold time of a selector change that would leave less than half of the pool's
	// endpoints; 0 applies every change at once.
	Guard time.Duration
	// LookAgain is the interval between checks of a missing pool that objectives refer to; 0 means
	// 1 min.
	LookAgain time.Duration
}

var (
	errNoSink = errors.New("kube: Options.Sink.Update is required")
	errPool   = errors.New("kube: either a pool name or a selector is required")
	errPorts  = fmt.Errorf("kube: a selector requires 1 to %d target ports", maxPorts)
	errFamily = fmt.Errorf("kube: the preferred family of pod addresses must be %s or %s", FamilyIPv4, FamilyIPv6)
	errGuard  = errors.New("kube: Options.Guard must not be negative")
	errGroup  = fmt.Errorf("kube: the pool's group must be %s or %s", GroupPool, GroupPoolOld)
)

func (o *Options) complete() error {
	switch {
	case o.Sink.Update == nil:
		return errNoSink
	case (o.Pool == "") == (o.Selector == ""):
		return errPool
	case o.Selector != "" && (len(o.Ports) == 0 || len(o.Ports) > maxPorts || slices.Contains(o.Ports, 0)):
		return errPorts
	case !slices.Contains([]string{"", GroupPool, GroupPoolOld}, o.Group):
		return errGroup
	case o.Guard < 0:
		return errGuard
	case !slices.Contains([]string{"", FamilyIPv4, FamilyIPv6}, o.IPFamily):
		return errFamily
	}
	o.Namespace = cmp.Or(o.Namespace, o.Config.Namespace, "default")
	o.Settle = cmp.Or(o.Settle, defaultSettle)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.LookAgain = cmp.Or(o.LookAgain, time.Minute)
	o.Agent = cmp.Or(o.Agent, "grapevine")
	if o.Sink.Writes == nil {
		o.Sink.Writes = func() bool { return true }
	}
	if o.Sink.Log == nil {
		o.Sink.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// from describes the followed objects.
func (o *Options) from() string {
	if o.Pool != "" {
		return kindPool + " " + o.Namespace + "/" + o.Pool
	}
	return "pods " + o.Selector + " in " + o.Namespace
}

// ParsePorts parses target ports.
func ParsePorts(list []string) (out []uint16, err error) {
	for _, s := range list {
		a, err := netip.ParseAddrPort("127.0.0.1:" + s)
		if err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("%q is not a port", s)
		}
		if slices.Contains(out, a.Port()) {
			return nil, fmt.Errorf("duplicate port %s", s)
		}
		out = append(out, a.Port())
	}
	if len(out) > maxPorts {
		return nil, fmt.Errorf("%d ports: want at most %d", len(out), maxPorts)
	}
	return out, nil
}
