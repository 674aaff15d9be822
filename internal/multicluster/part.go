package multicluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/cluster/federation/kube"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Options configure the exports of this cluster's pool, and the use of other clusters' pools. The
// zero value means no federation.
type Options struct {
	Use remotecluster.Options // Self and Pool are required; Hops, Resolve, Crowd and Stays are set by Open
	// Link makes the replica join a federation and sets all fields below. If nil, the caller
	// provides Read.
	Link *link.Config
	// Objects represents the federation in Kubernetes, and requires Link: the pool is exported only
	// while its annotation requests it. Only location and ownership need to be set. If nil, no
	// objects are maintained.
	Objects *kube.Options
	Read    func() *federation.View
	Write   func(federation.Export) // publishes the pool; nil: it is not exported
	Base    federation.Export       // configured fields of the pool
	// Direct means that other clusters can reach its endpoints.
	Direct bool
	Secret *filter.Secret // nil: no prefix filters, and tokens are not signed
	// Hot returns the hot set for one of the view's secrets, or nil if that secret is no longer
	// accepted. A nil function disables recording.
	Hot func(by *filter.Secret) *filter.Hot
}

// Replica provides data about this replica. All fields but Watch and Connections are required. The functions may be called at
// any time between Run and Close.
type Replica struct {
	Name       string
	Pool       *endpoint.Pool
	Group      func() (others, turn int) // other live replicas, and this one's rank
	Last       func() bool               // no other replica of the group stays
	Print      func() uint64             // ID of the group, see link.Link.SetPrint
	Queued     func() float64            // seconds of work waiting for capacity
	Unready    func() string             // why the pool is not known yet; "": it is
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Watch      *watchdog.Loop // of Run; nil: not watched

	Connections int // limit of connections from other clusters; 0: the link's default
}

const (
	pace         = 100 * time.Millisecond // interval of reading announcements
	describePace = 250 * time.Millisecond // interval of publishing
	hotQueue     = 1024                   // prompts waiting to be recorded
)

// Part is a replica's part in a federation. On a nil Part, RemoteClusters, Reload, Leave, Close,
// Status and TracksHotPrompts may be called. Safe for concurrent use.
type Part struct {
	o       Options
	r       Replica
	fleet   *remotecluster.Fleet
	link    *link.Link // nil: the caller provides Read
	objects *objects   // nil: not maintained
	names   *resolver
	asker   *asker       // for remote clusters' pickers
	last    atomic.Bool  // no replica of this cluster stays
	crowd   atomic.Int64 // replicas of the group that decide concurrently

	hot      chan prompt
	received chan prompt      // from other replicas
	hops     *federation.Hops // nil without a secret
	keys     sync.Pool
	share    *hotShare // nil: no group, or recording is off
	dropped  prometheus.Counter
	misses   atomic.Uint64 // the same count
	missedAt atomic.Int64  // time of the last one, Unix nanoseconds
	most     int           // configured limit of hot blocks; owned by Run
}

// Open joins the configured federation, or returns nil if there is none. Nothing is published
// before the replica is ready, and nothing runs before Run.
func Open(o Options, r Replica) (p *Part, err error) {
	p = &Part{r: r, hot: make(chan prompt, hotQueue), received: make(chan prompt, hotQueue), names: newResolver(), asker: newAsker()}
	if o.Link != nil {
		if err := p.open(&o); err != nil {
			return nil, err
		}
	}
	if o.Read == nil {
		return nil, nil
	}
	p.o = o
	p.keys.New = func() any { return []block.Key(nil) }
	p.dropped = prometheus.NewCounter(prometheus.CounterOpts{Name: "grapevine_elsewhere_hot_dropped_total", Help: "Prompts not recorded as hot for other clusters because the queue was full."})
	use := o.Use
	use.Resolve = p.names.resolve
	if len(p.asker.clusters) > 0 {
		use.Asked = p.asker.knows
	}
	p.crowd.Store(1)
	use.Crowd = func() int { return int(p.crowd.Load()) }
	if o.Secret != nil {
		p.hops = federation.NewHops(o.Secret, use.Self)
		use.Hops = p.hops
	}
	if o.Hot != nil {
		use.Stays = p.stays
	}
	p.fleet = remotecluster.New(use)
	if err := r.Registerer.Register(p.dropped); err != nil {
		p.Close()
		return nil, err
	}
	if err := p.fleet.Register(r.Registerer); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// open connects to the federation, follows its objects, and fills in the options.
func (p *Part) open(o *Options) error {
	l, err := link.Open(link.Options{Config: o.Link, Replica: p.r.Name, Registerer: p.r.Registerer, Log: p.r.Log, Connections: p.r.Connections})
	if err != nil {
		return err
	}
	l.SetReady(false, "this replica is not ready")
	o.Read, o.Secret, o.Write = l.View, l.View().Secret, nil
	for i := range o.Link.Exports {
		e := &o.Link.Exports[i]
		if e.Pool != o.Use.Pool.String() {
			continue
		}
		o.Base, o.Direct, o.Hot = o.Link.Export(e), e.Direct, func(by *filter.Secret) *filter.Hot { return l.HotSet(o.Use.Pool, by) }
		o.Write = func(e federation.Export) { l.SetExports([]federation.Export{e}) }
	}
	p.link = l
	if err := p.asker.trust(o.Link); err != nil {
		p.Close()
		return err
	}
	if err := p.openObjects(o); err != nil {
		p.Close()
		return err
	}
	return nil
}

// RemoteClusters returns the remote clusters for the scheduler; nil without a federation.
func (p *Part) RemoteClusters() picker.RemoteClusters {
	if p == nil {
		return nil
	}
	return remoteClusters{p.fleet, p}
}

// remoteClusters is a part's fleet as the scheduler uses it. It may ask the pickers of remote clusters.
type remoteClusters struct {
	*remotecluster.Fleet
	p *Part
}

// ResolveEndpoint implements picker.RemoteClusters.
func (rc remoteClusters) ResolveEndpoint(ctx context.Context, r *request.Request, ep *endpoint.Endpoint, headers []request.HeaderSet, now time.Time) (*endpoint.Endpoint, func(status int)) {
	return rc.Fleet.ResolveEndpoint(r, ep, headers, now, func(q *remotecluster.Question) (string, func(int), error) { return rc.p.asker.pick(ctx, q) })
}

// Reload rereads the federation's files as far as they may change.
func (p *Part) Reload() error {
	if p == nil || p.link == nil {
		return nil
	}
	err := p.link.Reload()
	p.useSecrets() // requests are signed with the new secret when Reload returns
	return err
}

// useSecrets signs and verifies requests with the secrets of the present view. Of simultaneous calls,
// the last one to end has set those of the latest view.
func (p *Part) useSecrets() {
	for v := p.o.Read(); p.hops != nil && v.Secret != nil; {
		p.hops.SetSecrets(v.Secret, v.Also)
		now := p.o.Read()
		if now == v {
			return
		}
		v = now
	}
}

// Leave directs clusters that ask this replica to another one. If no replica stays, it withdraws the
// pool instead, and answers until Close. Otherwise other clusters could not distinguish an uninstalled
// cluster from a silent one.
func (p *Part) Leave() {
	if p == nil || p.link == nil {
		return
	}
	if !p.r.Last() {
		p.link.Leave()
		return
	}
	p.last.Store(true)
	p.objects.withdraw()
	if p.o.Write != nil {
		e := remotecluster.Describe(p.r.Pool, p.o.Base, p.o.Direct, time.Now())
		e.Draining = true
		p.o.Write(e)
	}
}

// Close stops the part. Run and TrackHotPrompts must have returned.
func (p *Part) Close() (err error) {
	if p == nil {
		return nil
	}
	if p.objects != nil {
		p.objects.Close()
	}
	if p.link != nil {
		err = p.link.Close()
	}
	p.asker.close()
	p.names.close()
	return err
}

// Status is the state of other clusters for display.
type Status struct {
	// Federation is the state of other clusters, or nil.
	Federation *link.Status `json:"federation,omitempty"`
	// Objects is the state of the Kubernetes objects, or nil.
	Objects *kube.Status `json:"federation_objects,omitempty"`
	// RemoteClusters are the clusters that export the pool, as decisions see them.
	RemoteClusters []remotecluster.Status `json:"remote_clusters,omitempty"`
}

// Status returns the current status. Parts that do not exist are nil.
func (p *Part) Status(now time.Time) (st Status) {
	if p == nil {
		return st
	}
	if p.link != nil {
		v := p.fleet.View() // used by decisions; the link may be newer
		if v.Version == 0 {
			v = p.link.View() // decisions have none before Run
		}
		st.Federation = p.link.StatusOf(v)
		for i := range st.Federation.Exports {
			if e := &st.Federation.Exports[i]; e.Pool == p.o.Use.Pool.String() {
				e.HotNote = p.partial(now)
			}
		}
	}
	if p.objects != nil {
		o := p.objects.Status()
		st.Objects = &o
	}
	st.RemoteClusters = p.fleet.Status(now)
	return st
}

// Run follows announcements and publishes this cluster's until ctx ends.
func (p *Part) Run(ctx context.Context) {
	follow, describe := time.NewTicker(pace), time.NewTicker(describePace)
	defer follow.Stop()
	defer describe.Stop()
	var seen *federation.View
	for {
		p.r.Watch.Working()
		if v := p.o.Read(); p.names.changed.Swap(false) || v != seen {
			seen = v
			p.useSecrets()
			p.fleet.Update(v)
		}
		p.r.Watch.Waiting()
		select {
		case <-ctx.Done():
			return
		case <-follow.C:
		case now := <-describe.C:
			p.r.Watch.Working()
			p.describe(now)
		}
	}
}

// describe publishes the pool and whether this replica may answer for its cluster. It may once it
// has read the pool, even if the pool has no endpoint.
func (p *Part) describe(now time.Time) {
	others, turn := p.r.Group()
	p.crowd.Store(int64(others) + 1)
	if p.o.Write != nil {
		e := remotecluster.Describe(p.r.Pool, p.o.Base, p.o.Direct, now)
		remotecluster.Queue(&e, p.r.Queued())
		e.Draining = e.Draining || len(e.Ready) == 0 || p.last.Load()
		p.fit(e.Capacity.KVTokens)
		p.o.Write(e)
	}
	if p.link != nil { // after publishing the pool
		p.link.SetPrint(p.r.Print())
		why := p.objects.unready()
		if w := p.r.Unready(); w != "" {
			why = w
		}
		if why == "" && p.o.Use.Pool.Name != "" {
			p.link.SetServed([]federation.PoolKey{p.o.Use.Pool})
		}
		p.link.SetReady(why == "", why)
	}
	p.objects.follow(turn)
}
