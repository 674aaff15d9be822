package federation

import (
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// PoolKey names a pool. A pool of the same namespace and name is the same pool in
// every cluster of a federation.
type PoolKey struct{ Namespace, Name string }

// String returns namespace/name.
func (k PoolKey) String() string { return k.Namespace + "/" + k.Name }

// Address says where to connect, and what to say there.
type Address struct {
	HostPort string // host:port; an IP address, or a name that the importing side resolves
	SNI      string // server name of TLS; "": plaintext
	Host     string // Host (:authority) that the other side's routes match; "": that of the request
}

// Ready counts the endpoints of a pool that take requests, by model and role.
type Ready struct {
	Model string
	Role  uint8 // phases that they serve: the bits of picker/endpoint.Role
	Count int
}

// Load is what goes on in a pool, over all of its endpoints that are ready.
type Load struct {
	Requests int64 // in flight
	Waiting  int64 // of them, those that wait for their first token
	Queued   int64 // uncached prompt tokens of those that wait
	// Wait is how long a request that came now would wait for its prefill to begin at
	// the least loaded endpoint, MeanWait at one drawn by chance.
	Wait, MeanWait time.Duration
	KVUsage        float64 // share of the KV cache in use, 0..1
	// Saturation is 0 for an idle pool and 1 for one that should get no more requests.
	Saturation float64
}

// Capacity is what a pool could do.
type Capacity struct {
	Requests int64 // that its endpoints serve at once; 0: not known
	KVTokens int64 // that its endpoints hold; 0: not known
}

// Price is what a request costs in a pool, in seconds of an engine there and in the
// units of money that the federation agreed on.
type Price struct {
	// As picker/endpoint.Cost has them, of a typical endpoint there.
	Base, PerToken, PerPair, Step, PerSeq, PerContext float64
	Money                                             float64 // for a million tokens; 0: not stated
	Egress                                            string  // class of the traffic that leaves the cluster, for the importing side's table of prices
}

// Export is what a cluster says of one of its pools. Whoever has one must not
// change it.
type Export struct {
	Pool     PoolKey
	EPPs     []Address // for endpoint mode
	Gateways []Address // for parent mode
	Direct   []string  // ip:port of endpoints, where the exporter says that they can be reached from other clusters
	Region   string
	Zone     string
	Ready    []Ready
	Engines  int // endpoints of Ready that answer requests, each once; 0: none, or a release before does not tell
	Load     Load
	Capacity Capacity
	Price    Price
	// Draining: take no new requests there; the export is about to be withdrawn.
	Draining bool
}

// roleDecode is the bit of Ready.Role of those that answer requests. Endpoints that only
// prefill or encode cannot serve one.
const roleDecode = 1

// Endpoints returns how many endpoints answer requests for a model; "" counts all. A group
// without a model serves every one, one without a role is of those that answer.
func (e *Export) Endpoints(model string) (n int) {
	for i := range e.Ready {
		r := &e.Ready[i]
		if (r.Role == 0 || r.Role&roleDecode != 0) && (model == "" || r.Model == "" || r.Model == model) {
			n += r.Count
		}
	}
	if e.Engines > 0 { // an endpoint with several models is in several groups
		n = min(n, e.Engines)
	}
	return n
}

// State says how far what a cluster said can be used.
type State uint8

// States of a cluster, and of a pool that it exports.
const (
	Silent   State = iota // nothing is heard from it, or its lease has ended
	Refused               // the export is not accepted; the reason says why. Clusters are never in it
	Draining              // it is leaving: what is there may end, nothing new goes there
	Live                  // heard within its lease
	numStates
)

var stateNames = [numStates]string{"silent", "refused", "draining", "live"}

// String returns the state as users see it.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return stateNames[Silent]
}

// Remote is one pool of another cluster, as known here.
type Remote struct {
	*Export
	Cluster    string
	State      State
	Reason     string        // of every state but Live
	RTT        time.Duration // to the replica that is heard, smoothed; 0: not measured
	ReceivedAt time.Time     // when the reading arrived, by the clock here
	Until      time.Time     // end of the lease, by the clock here
	// Filter knows the hot prefixes there; nil when nothing is known of them. It goes on
	// changing, and may be asked concurrently.
	Filter     *filter.Filter
	Secret     *filter.Secret // makes the keys that Filter is asked with: one of the view's; nil: that in use
	FilterHead filter.Head    // of the filter as the exporter has it; zero: it has none for us
	FilterNote string         // "" when the filter is complete; else why not, or how far it has come
}

// Usable reports whether requests may go there: it is live, and its lease has not
// ended. A view is never believed beyond its leases, however late the next one is.
func (r *Remote) Usable(now time.Time) bool { return r.State == Live && now.Before(r.Until) }

// Cluster is another cluster as seen from here.
type Cluster struct {
	Name        string
	State       State
	Reason      string // of every state but Live
	Several     bool   // groups of replicas go by this name
	Replica     string // of it, that is heard
	RTT         time.Duration
	LastMessage time.Time // last message; zero: none
	Until       time.Time // end of the lease
	Pools       []*Remote // by namespace and name
}

// Told is how far another cluster knows of an own export.
type ExportAck struct {
	Cluster string
	State   State // Live: it has heard it within its lease and has accepted it
	Reason  string
	// Shown says whether its users see the export in an object of its own, and
	// ShownReason why not. Only what is Live is asked.
	Shown       Shown
	ShownReason string
}

// Shown says whether a cluster has an object for an export of another: in Kubernetes
// an InferencePoolImport that names the exporting cluster.
type Shown uint8

// Values of Shown.
const (
	NoObjects Shown = iota // the cluster keeps none
	NotShown               // not yet, or it cannot; the reason says why, if that is known
	IsShown
	numShown
)

// Import is what this cluster shows of the exports of others under one pool's name.
type Import struct {
	Pool     PoolKey
	Clusters []string // that its object names
	Reason   string   // why it does not say all that it should; "": it does, or will soon
}

// Own is a pool that this cluster exports.
type ExportView struct {
	Pool     PoolKey
	Draining bool
	Acks     []ExportAck // all clusters of the federation but this one, by name
	Untold   string      // what of it no message has room for; "": all is told
}

// View is what one process knows of the other clusters at one moment. It is
// immutable but for the filters and may be kept.
type View struct {
	Self     string         // name of this cluster; "": there is no federation
	Version  uint64         // rises with each change
	Clusters []*Cluster     // all that are configured, by name
	Exports  []ExportView   // of this cluster
	Secret   *filter.Secret // in use: makes the keys for filters; nil: filters are not used
	Also     *filter.Secret // another one that is good, while the secret is exchanged; nil: none
}

// Pool appends to dst the remote pools of a key, by cluster, in whatever state.
func (v *View) Pool(key PoolKey, dst []*Remote) []*Remote {
	for _, c := range v.Clusters {
		for _, p := range c.Pools {
			if p.Pool == key {
				dst = append(dst, p)
				break
			}
		}
	}
	return dst
}

// Cluster returns the cluster of a name, nil when there is none.
func (v *View) Cluster(name string) *Cluster {
	for _, c := range v.Clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Current holds the view of now. The zero value holds an empty one. Its methods may
// be called concurrently.
type Current struct{ p atomic.Pointer[View] }

var noView View

// Load returns the current view, never nil.
func (c *Current) Load() *View {
	if v := c.p.Load(); v != nil {
		return v
	}
	return &noView
}

// Store replaces the view.
func (c *Current) Store(v *View) { c.p.Store(v) }
