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
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Options say what other clusters are told of this one's pool, and how theirs are used.
// The zero value stands for no federation.
type Options struct {
	Use remotecluster.Options // Self and Pool are required; Hops, Resolve, Crowd and Stays are filled
	// Link has the replica take part in a federation; all below is filled from it. nil:
	// whoever sets Read does that.
	Link *link.Config
	// Objects has Kubernetes show the federation, with Link: the pool is exported only
	// while its annotation asks for it. All but where and whose they are is filled. nil:
	// no objects are kept.
	Objects *kube.Options
	Read    func() *federation.View
	Write   func(federation.Export) // takes what the pool tells; nil: it is not exported
	Base    federation.Export       // what is configured of the pool
	// Direct tells that its endpoints can be reached from other clusters.
	Direct bool
	Secret *filter.Secret // nil: nothing is known of prefixes elsewhere, and tokens are not signed
	// Hot returns what remembers what is served here, by keys of one of the view's secrets;
	// nil: that secret is good no more. A nil function: nothing is remembered.
	Hot func(by *filter.Secret) *filter.Hot
}

// Replica is whose part it is. All fields are required; the functions may be called at
// any time between Run and Close.
type Replica struct {
	Name       string
	Pool       *endpoint.Pool
	Group      func() (others, turn int) // other replicas that are up, and this one's place among all
	Print      func() uint64             // of the group, see link.Link.SetPrint
	Queued     func() float64            // seconds that what waits for capacity takes to go
	Unready    func() string             // why the pool is not known yet; "": it is
	Registerer prometheus.Registerer
	Log        *slog.Logger

	Connections int // that other clusters may make at a time; 0: as many as the link takes
}

const (
	pace         = 100 * time.Millisecond // between two looks at what others tell
	describePace = 250 * time.Millisecond // between two tellings
	hotQueue     = 1024                   // prompts that wait to be remembered
)

// Part is a replica's part in a federation. A nil one is no part: Elsewhere, Reload, Leave, Close,
// Status and TracksHotPrompts may be called on it. Methods are safe for concurrent use.
type Part struct {
	o       Options
	r       Replica
	fleet   *remotecluster.Fleet
	link    *link.Link // nil: Read is somebody else's
	objects *objects   // nil: none are kept
	names   *resolver
	asker   *asker       // of other clusters' pickers
	crowd   atomic.Int64 // replicas of the group that decide at the same time

	hot      chan prompt
	heard    chan prompt      // of other replicas
	hops     *federation.Hops // nil: without a secret
	keys     sync.Pool
	share    *hotShare // nil: alone, or nothing is remembered
	dropped  prometheus.Counter
	misses   atomic.Uint64 // what it counts
	missedAt atomic.Int64  // the last of them, Unix nanoseconds
	most     int           // blocks that are remembered at most, as configured; of Run
}

// Open takes part in the federation that the options describe, nil when there is none.
// Nothing is told before the replica is ready, and nothing is done before Run.
func Open(o Options, r Replica) (p *Part, err error) {
	p = &Part{r: r, hot: make(chan prompt, hotQueue), heard: make(chan prompt, hotQueue), names: newResolver(), asker: newAsker()}
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
	p.dropped = prometheus.NewCounter(prometheus.CounterOpts{Name: "grapevine_elsewhere_hot_dropped_total", Help: "Prompts that were not remembered for other clusters because too many came at once."})
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

// open connects to the federation, follows its objects, and fills the rest of the options.
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

// RemoteClusters is what the scheduler asks for endpoints of other clusters.
func (p *Part) RemoteClusters() *picker.RemoteClusters {
	if p == nil {
		return nil
	}
	e := p.fleet.RemoteClusters()
	e.ResolveEndpoint = func(ctx context.Context, r *request.Request, ep *endpoint.Endpoint, headers []request.HeaderSet, now time.Time) (*endpoint.Endpoint, func(status int)) {
		return p.fleet.ResolveEndpoint(r, ep, headers, now, func(q *remotecluster.Question) (string, func(int), error) { return p.asker.pick(ctx, q) })
	}
	return e
}

// Reload reads again what the federation's files hold, as far as that may change.
func (p *Part) Reload() error {
	if p == nil || p.link == nil {
		return nil
	}
	return p.link.Reload()
}

// Leave sends those who ask this replica to another one.
func (p *Part) Leave() {
	if p != nil && p.link != nil {
		p.link.Leave()
	}
}

// Close ends the part. Run and TrackHotPrompts have returned before.
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

// Status is what is known of other clusters, for users.
type Status struct {
	// Federation is what is known of other clusters, nil without one.
	Federation *link.Status `json:"federation,omitempty"`
	// Objects is what Kubernetes shows of it, nil where none are kept.
	Objects *kube.Status `json:"federation_objects,omitempty"`
	// RemoteClusters are the other clusters that export the pool, as decisions see them.
	RemoteClusters []remotecluster.Status `json:"elsewhere,omitempty"`
}

// Status returns what there is of it; nil fields have nothing to show.
func (p *Part) Status(now time.Time) (st Status) {
	if p == nil {
		return st
	}
	if p.link != nil {
		v := p.fleet.View() // what decisions go by, not what has come since
		if v.Version == 0 {
			v = p.link.View() // they know nothing before Run
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

// Run follows what others tell, and tells of this cluster, until ctx ends.
func (p *Part) Run(ctx context.Context) {
	follow, describe := time.NewTicker(pace), time.NewTicker(describePace)
	defer follow.Stop()
	defer describe.Stop()
	var seen *federation.View
	for {
		if v := p.o.Read(); p.names.changed.Swap(false) || v != seen {
			seen = v
			if p.hops != nil && v.Secret != nil {
				p.hops.SetSecrets(v.Secret, v.Also)
			}
			p.fleet.Update(v)
		}
		select {
		case <-ctx.Done():
			return
		case <-follow.C:
		case now := <-describe.C:
			p.describe(now)
		}
	}
}

// describe tells of the pool, and whether this replica speaks for its cluster: once it
// knows the pool, also when that has no endpoint.
func (p *Part) describe(now time.Time) {
	others, turn := p.r.Group()
	p.crowd.Store(int64(others) + 1)
	if p.o.Write != nil {
		e := remotecluster.Describe(p.r.Pool, p.o.Base, p.o.Direct, now)
		remotecluster.Queue(&e, p.r.Queued())
		e.Draining = e.Draining || len(e.Ready) == 0
		p.fit(e.Capacity.KVTokens)
		p.o.Write(e)
	}
	if p.link != nil { // after what there is to tell
		p.link.SetPrint(p.r.Print())
		why := p.objects.unready()
		if w := p.r.Unready(); w != "" {
			why = w
		}
		p.link.SetReady(why == "", why)
	}
	p.objects.follow(turn)
}
