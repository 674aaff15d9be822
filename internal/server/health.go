package server

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/monitor"
)

// healthOptions are what the health monitor connects.
type healthOptions struct {
	Pool      *endpoint.Pool
	Node      *cluster.Node
	Grouped   bool
	Scheme    string // of engines, http or https
	Client    *http.Client
	Refresh   func(*endpoint.Endpoint) // rereads the metrics page soon
	ProbeIdle time.Duration
	Registry  prometheus.Registerer
	Log       *slog.Logger
	Watch     *watchdog.Loop
	// Background runs a goroutine that ends before the server's Stop returns.
	Background func(func())
}

// openHealth starts the health monitor and shares its evidence. The node is opened later.
func openHealth(o healthOptions) (*monitor.Monitor, error) {
	var tell facts.SetFunc
	prober := monitor.NewProber(o.Scheme, o.Client)
	prober.Peer = func(ep *endpoint.Endpoint) *endpoint.Endpoint { return healthyPeer(o.Pool, ep) }
	mo := monitor.Options{
		Pool: o.Pool, Refresh: o.Refresh, Registerer: o.Registry, Log: o.Log, Watch: o.Watch,
		Health: health.Options{Idle: o.ProbeIdle}, Probe: prober.Probe,
	}
	if o.Grouped {
		line := &probeLine{node: o.Node, background: o.Background}
		mo.Rank = line.turn
		mo.Publish = func(address string, value []byte) error { return tell(address, value) }
	}
	m, err := monitor.Open(mo)
	if err != nil {
		return nil, err
	}
	tell = facts.Of(o.Node).Gauge(facts.StateHealth, facts.StateVersion, m)
	return m, nil
}

// healthyPeer returns a healthy endpoint with the same model and role, or nil.
func healthyPeer(pool *endpoint.Pool, ep *endpoint.Endpoint) *endpoint.Endpoint {
	all, snapshot := pool.Snapshot().Endpoints, pool.Health()
	from := rand.IntN(max(len(all), 1))
	for i := range all {
		o := all[(from+i)%len(all)]
		if o.ID != ep.ID && o.Base() == ep.Base() && o.Role == ep.Role && !o.Down() && snapshot.View(int(o.ID)).State == health.Healthy {
			return o
		}
	}
	return nil
}

// probeLine orders the replicas that probe an endpoint, by rendezvous hashing over live members. It
// is safe for concurrent use.
type probeLine struct {
	node       *cluster.Node
	background func(func()) // runs a goroutine that ends before the server's Stop returns

	mu      sync.Mutex
	at      time.Time // of the last refresh
	members []string
}

// turn returns this replica's position for an endpoint, 0 for the elected one. The monitor calls it
// with its lock held, which the group may wait for when a member leaves. Members are therefore
// refreshed in the background, and the last known ones are used.
func (l *probeLine) turn(address string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.at) > time.Second {
		l.at = now
		l.background(l.ask)
	}
	own, ahead := xxhash.Sum64String(l.node.Self().ID+" "+address), 0
	for _, id := range l.members {
		if xxhash.Sum64String(id+" "+address) > own {
			ahead++
		}
	}
	return ahead
}

// ask refreshes the list of live members.
func (l *probeLine) ask() {
	var members []string
	peers, _ := l.node.Peers()
	for _, p := range peers {
		if p.State == "up" && !p.Leaving {
			members = append(members, p.ID)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = members
}

// HealthStatus is an endpoint's health with its reasons.
type HealthStatus struct {
	State         string   `json:"state"` // healthy, unreached, suspect, out, probing, returning
	SinceS        float64  `json:"since_s"`
	Share         float64  `json:"share"` // share of decisions in which it may be a candidate, 0..1
	Cause         string   `json:"cause,omitempty"`
	Evidence      string   `json:"evidence,omitempty"`
	BackBy        string   `json:"back_by,omitempty"`
	FullS         float64  `json:"full_s,omitempty"`         // remaining time of avoidance after its engine rejected a request for lack of capacity
	AvoidedModels []string `json:"avoided_models,omitempty"` // models that fail here while others succeed; their requests go elsewhere
	AvoidedOthers int      `json:"avoided_others,omitempty"` // clients and kinds of request that fail here while others succeed
	Overruled     bool     `json:"overruled,omitempty"`      // soft evidence is ignored because it applies to most of the pool
}

func healthStatus(v health.View, now time.Time) HealthStatus {
	h := HealthStatus{State: v.Word(), Share: float64(v.Share) / health.Full, Evidence: v.Evidence(), BackBy: v.Remedy(), Overruled: v.Overruled}
	if v.State != health.Healthy {
		h.Cause = v.Cause.String()
	}
	if !v.Since.IsZero() {
		h.SinceS = now.Sub(v.Since).Seconds()
	}
	return h
}

// poolProblem describes the pool's problem as a whole, "" if there is none.
func poolProblem(pool *endpoint.Pool) string {
	snap := pool.Health()
	if snap == nil || len(snap.GroupProblems) == 0 {
		return ""
	}
	t := snap.GroupProblems[0]
	for _, o := range snap.GroupProblems { // the worst one
		if o.Failing > t.Failing || o.Failing == t.Failing && o.Unhealthy*t.Endpoints > t.Unhealthy*o.Endpoints {
			t = o
		}
	}
	words := describeProblem(t, example(pool.Snapshot(), t, snap))
	if n := len(pool.Snapshot().Endpoints); t.Endpoints < n && t.Group != "" {
		words = t.Group + ": " + words
	}
	if n := len(snap.GroupProblems) - 1; n > 0 {
		words += fmt.Sprintf("; %d other models or roles have problems", n)
	}
	return words
}

// describeProblem describes a group's problem.
func describeProblem(t health.GroupProblem, example string) string {
	switch {
	case t.Failing > 0:
		return fmt.Sprintf("engines fail %.0f%% of the requests, most of them equally, so all stay in use", 100*t.Failing)
	case t.Ignored > 0 && t.Unhealthy == 0:
		return "most endpoints are suspect, so all stay in use"
	case t.Ignored > 0:
		return "most endpoints look unhealthy, so endpoints that are no worse than the others stay in use (" + example + ")"
	}
	return fmt.Sprintf("%d of %d endpoints are out (%s)", t.Unhealthy, t.Endpoints, example)
}

// example describes the evidence against one unhealthy endpoint of a group.
func example(pool *endpoint.Snapshot, t health.GroupProblem, snap *health.Snapshot) string {
	ep := pool.ByID(t.Example)
	if t.Unhealthy == 0 || ep == nil {
		return ""
	}
	v := snap.View(t.Example)
	return ep.Address + ": " + v.Evidence()
}
