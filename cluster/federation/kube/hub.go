package kube

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// HubOptions open a Hub. Members and Pools are required.
type HubOptions struct {
	Members   map[string]kubeapi.Config // API servers by cluster name
	Pools     []Name                    // pools to export if their annotation requests it
	Namespace string                    // namespace to manage; "": all
	// APITimeout is how long an API server may be unreachable before its cluster counts as silent. It
	// is also how long the other clusters wait for the first read of one. 0: 10 s.
	APITimeout time.Duration
	Drain      time.Duration // as in Options
	Agent      string
	Log        *slog.Logger
}

// Hub maintains the objects of several clusters from one process. It runs a Controller for each API
// server and passes each controller's state to the others. Clusters exchange nothing else. A second
// Hub does no harm. Safe for concurrent use.
type Hub struct {
	o     HubOptions
	began time.Time
	stop  chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex
	members []*hubMember // by name
}

// hubMember is one cluster of a Hub.
type hubMember struct {
	name       string
	controller *Controller
	local      *Local // nil: its objects have not been read yet
}

// hubPace is how often a Hub checks whether API servers answer.
const hubPace = 500 * time.Millisecond

var errHub = errors.New("kube: a hub requires at least two members and one pool")

// OpenHub maintains objects until Close. It retries API servers that do not answer.
func OpenHub(o HubOptions) (*Hub, error) {
	if len(o.Members) < 2 || len(o.Pools) == 0 {
		return nil, errHub
	}
	o.APITimeout = cmp.Or(o.APITimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Hub{o: o, began: time.Now(), stop: make(chan struct{})}
	for name := range o.Members {
		h.members = append(h.members, &hubMember{name: name})
	}
	slices.SortFunc(h.members, func(a, b *hubMember) int { return cmp.Compare(a.name, b.name) })
	for _, m := range h.members {
		c, err := Open(h.options(m))
		if err != nil {
			h.Close()
			return nil, err
		}
		h.mu.Lock()
		m.controller = c
		h.mu.Unlock()
	}
	h.wg.Go(h.watch)
	return h, nil
}

func (h *Hub) options(m *hubMember) Options {
	serves := map[Name]string{}
	for _, p := range h.o.Pools {
		serves[p] = ""
	}
	return Options{
		// Its own controllers are the only source of exports: none exports a pool that is not in the list.
		Controller: HubController, MaxExports: len(h.o.Pools), Lease: h.o.APITimeout,
		Config: h.o.Members[m.name], Namespace: h.o.Namespace, Drain: h.o.Drain, Agent: h.o.Agent, Log: h.o.Log.With("cluster", m.name),
		Serves: func() map[Name]string { return serves },
		View:   func() View { return h.view(m) },
		Publish: func(l Local) {
			h.mu.Lock()
			m.local = &l
			h.mu.Unlock()
			h.wake()
		},
	}
}

// Close stops the hub. Entries stay as they are.
func (h *Hub) Close() {
	close(h.stop)
	h.wg.Wait()
	for _, m := range h.members {
		if m.controller != nil {
			m.controller.Close()
		}
	}
}

// Status returns the status of each cluster's objects.
func (h *Hub) Status() map[string]Status {
	out := map[string]Status{}
	for _, m := range h.members {
		out[m.name] = m.controller.Status()
	}
	return out
}

// view is the federation as one member sees it.
func (h *Hub) view(of *hubMember) View {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	v := View{Cluster: of.name, Settled: true}
	for _, m := range h.members {
		if m == of {
			continue
		}
		out := Member{Cluster: m.name, Reason: m.silent(now, h.o.APITimeout)}
		out.Silent = out.Reason != ""
		if m.local == nil && now.Sub(h.began) < h.o.APITimeout {
			v.Settled = false
		}
		if m.local != nil {
			out.Exports, out.Holds, out.Served, out.ServedKnown = m.local.Exports, m.local.Holds, m.local.Served, true
		}
		v.Members = append(v.Members, out)
	}
	return v
}

// silent returns why a cluster counts as silent, or "".
func (m *hubMember) silent(now time.Time, patience time.Duration) string {
	if m.local == nil || m.controller == nil {
		return "its objects have not been read yet"
	}
	if st := m.controller.pools.State(); st.Err != nil && now.Sub(st.Since) > patience {
		return "its API server does not answer"
	}
	return ""
}

// wake wakes all controllers.
func (h *Hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.members {
		if m.controller != nil {
			m.controller.Wake()
		}
	}
}

// watch wakes the controllers when a cluster becomes silent or is heard again, and when the initial
// wait is over.
func (h *Hub) watch() {
	t := time.NewTicker(hubPace)
	defer t.Stop()
	was := "-"
	for {
		select {
		case <-h.stop:
			return
		case now := <-t.C:
			is := ""
			h.mu.Lock()
			for _, m := range h.members {
				if why := m.silent(now, h.o.APITimeout); why != "" {
					is += m.name + ": " + why + "; "
				}
			}
			h.mu.Unlock()
			if now.Sub(h.began) < 2*h.o.APITimeout || is != was {
				h.wake()
			}
			if is != was {
				h.o.Log.Info("silent clusters changed", "silent", is)
			}
			was = is
		}
	}
}
