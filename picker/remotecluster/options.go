package remotecluster

import (
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/plugins/predicted"
)

// Use says which requests other clusters are candidates for.
type Use string

// Uses.
const (
	UseNamed  Use = "named"  // those whose route names the import
	UseAlways Use = "always" // all
	UseNever  Use = "never"  // none: what is told of other clusters is shown, and not used
)

// Mode says where requests to another cluster go.
type Mode string

// Modes.
const (
	ModeParent   Mode = "parent"   // to its gateway, whose picker chooses
	ModeEndpoint Mode = "endpoint" // to one of its endpoints, where it tells them: its picker's choice, or by lot; else to its gateway
)

// Options build a Fleet. Self is required.
type Options struct {
	Self   string             // name of this cluster
	Region string             // of this cluster, for rules that name regions
	Pool   federation.PoolKey // the pool here, which has the same name in other clusters
	Use    Use                // default UseNamed
	Mode   Mode               // default ModeParent
	Rules  Rules              // where requests may be served
	// Regions is where clusters are, by name, for rules; what those that are not in it tell of
	// themselves is believed.
	Regions map[string]string
	Egress  map[string]float64 // by class: seconds that a gigabyte out of there is worth; "" stands for all others
	Params  predicted.Params   // of the cost; zero means predicted.Defaults
	Hops    *federation.Hops   // signs what leaves and reads what came; nil: tokens are neither signed nor checked
	Margin  Margins            // zero means DefaultMargins
	// Resolve returns the addresses behind a host:port; nil takes literal ones only. It is
	// called by Update.
	Resolve func(hostPort string) []netip.AddrPort
	// Asked reports whether the pickers of a cluster may be asked for an endpoint, in
	// ModeEndpoint: see Fleet.Ask. nil: none may.
	Asked func(cluster string) bool
	// Timeout is how long that may take; 0: four round trips and 100 ms, 500 ms at most.
	Timeout time.Duration
	// Crowd is how many like this one may send to the same clusters at the same moment,
	// unseen by each other: the replicas of the group. nil means 1.
	Crowd func() int
	// Stays is told the keys of prompts that are served here, for what this cluster
	// exports, by each of the view's secrets; nil: nobody is.
	Stays func(by *filter.Secret, keys []block.Key)
}

// Margins say by how much another cluster must be cheaper.
type Margins struct {
	Enter, EnterFloor float64 // share of the price here and seconds at least, where nothing went of late
	Leave, LeaveFloor float64 // the same where something did
	Hold              float64 // seconds for which the last one counts as of late
}

// DefaultMargins are used unless configured otherwise.
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

// literal reads an ip:port.
func literal(hostPort string) []netip.AddrPort {
	addr, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return nil
	}
	return []netip.AddrPort{addr}
}
