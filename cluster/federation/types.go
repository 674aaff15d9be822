package federation

import (
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// PoolKey names a pool. The same namespace and name mean the same pool in every cluster of a
// federation.
type PoolKey struct{ Namespace, Name string }

// String returns namespace/name.
func (k PoolKey) String() string { return k.Namespace + "/" + k.Name }

// Address is where and how to connect.
type Address struct {
	HostPort string // host:port; an IP address, or a name that the importing side resolves
	SNI      string // TLS server name; "": plaintext
	Host     string // Host (:authority) that the other side's routes match; "": the request's
}

// Ready counts the ready endpoints of a pool, by model and role.
type Ready struct {
	Model string
	Role  uint8 // phases they serve: the bits of picker/endpoint.Role
	Count int
}

// Load is the load of a pool, summed over its ready endpoints.
type Load struct {
	Requests int64 // in flight
	Waiting  int64 // of those, waiting for their first token
	Queued   int64 // uncached prompt tokens of the waiting requests
	// Wait is how long a new request would wait for its prefill on the least loaded endpoint.
	// MeanWait is the same for a random endpoint.
	Wait, MeanWait time.Duration
	KVUsage        float64 // share of the KV cache in use, 0..1
	// Saturation is 0 for an idle pool and 1 for one that should get no more requests.
	Saturation float64
}

// Capacity is the capacity of a pool.
type Capacity struct {
	Requests int64 // served at the same time by its endpoints; 0: unknown
	KVTokens int64 // KV-cache size of its endpoints; 0: unknown
}

// Price is the cost of a request in a pool, in engine seconds and in the federation's unit of
// money.
type Price struct {
	// Costs as in picker/endpoint.Cost, for a typical endpoint.
	Base, PerToken, PerPair, Step, PerSeq, PerContext float64
	Money                                             float64 // per million tokens; 0: not stated
	Egress                                            string  // class of outgoing traffic, an index into the importing side's price table
}

// Export is a cluster's description of one of its pools. It must not be modified after publication.
type Export struct {
	Pool     PoolKey
	EPPs     []Address // for endpoint mode
	Gateways []Address // for parent mode
	Direct   []string  // ip:port of endpoints that other clusters can reach, according to the exporter
	Region   string
	Zone     string
	Ready    []Ready
	Engines  int // endpoints of Ready that answer requests, each counted once; 0: none, or not sent by an older release
	Load     Load
	Capacity Capacity
	Price    Price
	// Draining means that no new requests should go there; the export will be withdrawn.
	Draining bool
}

// roleDecode is the bit of Ready.Role for endpoints that answer requests. Endpoints with only
// prefill or encode cannot.
const roleDecode = 1

// Endpoints returns how many endpoints answer requests for a model; "" means any. A group without a
// model serves every model. A group without a role answers requests.
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

// State is how far a cluster's data can be used.
type State uint8

// States of a cluster, and of its exported pools.
const (
	Silent   State = iota // not heard, or its lease has ended
	Refused               // the export is not accepted, for the given reason. Not used for clusters
	Draining              // it is being removed: existing requests may finish, no new ones start
	Live                  // heard within its lease
	numStates
)

var stateNames = [numStates]string{"silent", "refused", "draining", "live"}

// String returns the state for display.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return stateNames[Silent]
}

// Remote is one pool of another cluster, as seen here.
type Remote struct {
	*Export
	Cluster    string
	State      State
	Reason     string        // for every state except Live
	RTT        time.Duration // to the asked replica, smoothed; 0: not measured
	ReceivedAt time.Time     // when the data arrived, by the local clock
	Until      time.Time     // end of the lease, by the local clock
	// Filter contains the hot prefixes there; nil if unknown. It keeps changing and is safe for
	// concurrent use.
	Filter     *filter.Filter
	Secret     *filter.Secret // for the keys of Filter, one of the view's; nil: the one in use
	FilterHead filter.Head    // of the exporter's current filter; zero: it has none for us
	FilterNote string         // why the filter is incomplete, or its progress; "": complete
}

// Usable reports whether requests may go there: it is live and its lease has not ended. A view
// never outlives its leases, however late the next one is.
func (r *Remote) Usable(now time.Time) bool { return r.State == Live && now.Before(r.Until) }

// Cluster is another cluster as seen from here.
type Cluster struct {
	Name        string
	State       State
	Reason      string // for every state except Live
	Several     bool   // several replica groups use this name
	Replica     string // its replica that answers us
	RTT         time.Duration
	LastMessage time.Time // when the last message arrived; zero: none
	Until       time.Time // end of the lease
	Pools       []*Remote // by namespace and name
	// Served lists the pools for which the cluster's last message is complete: it does not export a
	// served pool that is missing in Pools. ServedKnown is false for older releases.
	Served      []PoolKey
	ServedKnown bool
}

// ExportAck is another cluster's state for one of our exports.
type ExportAck struct {
	Cluster string
	State   State // Live: heard within its lease and accepted
	Reason  string
	// Shown is whether the cluster shows the export as an object, and ShownReason why not. It is
	// set only if State is Live.
	Shown       Shown
	ShownReason string
}

// Shown is whether a cluster has an object for another's export: in Kubernetes an
// InferencePoolImport that names the exporting cluster.
type Shown uint8

// Values of Shown.
const (
	NoObjects Shown = iota // the cluster has no objects
	NotShown               // not yet, or not possible; the reason says why if it is known
	IsShown
	numShown
)

// Import is the state of other clusters' exports in this cluster, for one pool.
type Import struct {
	Pool     PoolKey
	Clusters []string // named in its object
	Reason   string   // why the object is incomplete; "": it is complete or will be soon
}

// ExportView is a pool that this cluster exports.
type ExportView struct {
	Pool     PoolKey
	Draining bool
	Acks     []ExportAck // all other clusters of the federation, by name
	Omitted  string      // parts that do not fit in messages; "": none
}

// View is one process's view of the other clusters at one moment. It is immutable, except for the
// filters, and may be kept.
type View struct {
	Self     string         // name of this cluster; "": no federation
	Version  uint64         // increases with each change
	Clusters []*Cluster     // all configured clusters, by name
	Exports  []ExportView   // of this cluster
	Secret   *filter.Secret // in use, for the keys of filters; nil: filters are off
	Also     *filter.Secret // second accepted secret during a rotation; nil: none
}

// Pool appends the remote pools with that key to dst, by cluster, in any state.
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

// Cluster returns the cluster with that name, or nil.
func (v *View) Cluster(name string) *Cluster {
	for _, c := range v.Clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Current holds the current view. The zero value holds an empty one. Safe for concurrent use.
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
