package replay

import (
	"cmp"
	"slices"
	"time"
)

// Tenant summarises the requests of one tenant and priority.
type Tenant struct {
	Name     string  `json:"tenant"`
	Priority int     `json:"priority"`
	Requests int     `json:"requests"`
	Shed     int     `json:"shed"`   // refused or ended
	Share    float64 `json:"share"`  // of the time that all requests together were at engines
	Tokens   float64 `json:"tokens"` // its share of those generated
	Queue    Summary `json:"queue_s"`
	TTFT     Summary `json:"ttft_s"`
}

// mostTenants is the number of tenants that a Result lists by name; the others of a priority are
// combined.
const (
	mostTenants   = 20
	restOfTenants = "(others)"
)

// tenants sums up by tenant.
func (s *simulation) tenants() []Tenant {
	if s.replicas[0].queue == nil && len(s.Trace.Tenants) < 2 && len(priorities(s.Trace)) == 0 {
		return nil
	}
	names := s.rowOwners()
	sums := map[owner]*tenantSum{}
	held, generated := time.Duration(0), 0
	for i := range s.outcomes {
		r, o := &s.Trace.Requests[i], &s.outcomes[i]
		if r.At < s.Warmup {
			continue
		}
		who := names[owner{r.Tenant, r.Priority}]
		t := sums[who]
		if t == nil {
			t = &tenantSum{}
			sums[who] = t
		}
		if t.requests++; o.Error != "" {
			t.shed++
			continue
		}
		at := o.End - r.At - o.Queued
		t.held, t.tokens = t.held+at, t.tokens+r.Output
		held, generated = held+at, generated+r.Output
		t.queue, t.ttft = append(t.queue, o.Queued.Seconds()), append(t.ttft, (o.First-r.At).Seconds())
	}
	out := make([]Tenant, 0, len(sums))
	for who, t := range sums {
		name := restOfTenants
		if who.tenant != others {
			name = s.Trace.TenantName(who.tenant)
		}
		out = append(out, Tenant{
			Name: name, Priority: int(who.priority), Requests: t.requests, Shed: t.shed,
			Share: ratio(float64(t.held), float64(held)), Tokens: ratio(float64(t.tokens), float64(generated)),
			Queue: summarise(t.queue), TTFT: summarise(t.ttft),
		})
	}
	slices.SortFunc(out, func(a, b Tenant) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// owner is a tenant's requests of one priority.
type owner struct{ tenant, priority int32 }

// others is the tenant that combines unlisted tenants.
const others = int32(-1 << 31)

type tenantSum struct {
	requests, shed, tokens int
	held                   time.Duration
	queue, ttft            []float64
}

// tell maps each tenant to the name in the report: its own name for the tenants with most requests.
func (s *simulation) rowOwners() map[owner]owner {
	count := map[owner]int{}
	for i := range s.Trace.Requests {
		r := &s.Trace.Requests[i]
		if r.At >= s.Warmup {
			count[owner{r.Tenant, r.Priority}]++
		}
	}
	list := make([]owner, 0, len(count))
	for who := range count {
		list = append(list, who)
	}
	slices.SortFunc(list, func(a, b owner) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(b.priority, a.priority), cmp.Compare(a.tenant, b.tenant))
	})
	names := make(map[owner]owner, len(list))
	for i, who := range list {
		names[who] = who
		if i >= mostTenants {
			names[who] = owner{others, who.priority}
		}
	}
	return names
}
