package remotecluster

import (
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/plugins/predicted"
)

// Use selects the requests for which remote clusters are candidates.
type Use string

// Values of Use.
const (
	UseNamed  Use = "named"  // those whose route names the import
	UseAlways Use = "always" // all
	UseNever  Use = "never"  // none: remote clusters are shown but not used
)

// Mode selects the destination in a remote cluster.
type Mode string

// Values of Mode.
const (
	ModeParent   Mode = "parent"   // its gateway, whose picker chooses
	ModeEndpoint Mode = "endpoint" // one of its announced endpoints, chosen by its picker or at random; otherwise its gateway
)

// Options configure a Fleet. Self is required.
type Options struct {
	Self   string             // name of this cluster
	Region string             // of this cluster, for rules with regions
	Pool   federation.PoolKey // the local pool; it has the same name in other clusters
	Use    Use                // default UseNamed
	Mode   Mode               // default ModeParent
	Rules  Rules              // where requests may be served
	// Regions has clusters' regions for rules, by name. Other clusters' announced regions are used.
	Regions map[string]string
	Egress  map[string]float64 // by class: seconds per gigabyte; "" is the default
	Params  predicted.Params   // of the cost; zero means predicted.Defaults
	Hops    *federation.Hops   // signs outgoing and verifies incoming tokens; nil: neither
	Margin  Margins            // zero means DefaultMargins
	// Resolve returns the addresses of a host:port; nil accepts only literal addresses. Update
	// calls it.
	Resolve func(hostPort string) []netip.AddrPort
	// Asked reports whether this cluster may ask a remote cluster's pickers for an endpoint, in
	// ModeEndpoint: see Fleet.ResolveEndpoint. nil: never.
	Asked func(cluster string) bool
	// Timeout is the time limit for that; 0: four round trips and 100 ms, up to 500 ms.
	Timeout time.Duration
	// Crowd returns how many replicas may send to the same clusters at the same time without seeing
	// each other: the size of the group. nil means 1.
	Crowd func() int
	// Stays receives the keys of prompts served here, for this cluster's exports, with each of the
	// view's secrets. It may be nil.
	Stays func(by *filter.Secret, keys []block.Key)
}

// Margins are the required price advantages of a remote cluster.
type Margins struct {
	Enter, EnterFloor float64 // minimum advantage as a fraction of the local price, and in seconds, if no request went there recently
	Leave, LeaveFloor float64 // the same if one did
	Hold              float64 // seconds for which the last request counts as recent
}

// DefaultMargins are the default margins.
var DefaultMargins = Margins{Enter: .25, EnterFloor: .030, Leave: .05, LeaveFloor: .005, Hold: 2}

func (o Options) complete() Options {
	if o.Use == "" {
		o.Use = UseNamed
	}
	if o.Mode == "" {
		o.Mode = ModeParent
	}
	if o.Params == (predicted.Params{}) {
		o.Params = predicted.Defaults
	}
	if o.Margin == (Margins{}) {
		o.Margin = DefaultMargins
	}
	if o.Resolve == nil {
		o.Resolve = literal
	}
	if o.Crowd == nil {
		o.Crowd = func() int { return 1 }
	}
	return o
}

// literal parses an ip:port.
func literal(hostPort string) []netip.AddrPort {
	addr, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return nil
	}
	return []netip.AddrPort{addr}
}
