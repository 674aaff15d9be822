package remotecluster

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Question asks a remote cluster's picker for an endpoint.
type Question struct {
	Cluster string
	EPP     federation.Address
	Request *request.Request
	Token   string // hop token; it keeps the picker from forwarding the request
	// Timeout is the time limit for the answer.
	Timeout time.Duration
}

// Refused is the error if a picker answers without an endpoint.
type Refused struct{ Status int }

// Error implements error.
func (r Refused) Error() string { return "remotecluster: a picker answered " + strconv.Itoa(r.Status) }

// full reports whether the cluster has no capacity.
func (r Refused) full() bool {
	return r.Status == 429 || r.Status == 503
}

// Time limits for a remote picker's answer, which may need a new connection.
const (
	askTrips = 4 // round trips
	askWork  = 100 * time.Millisecond
	askMost  = 500 * time.Millisecond
)

// asks reports whether to ask a cluster's picker for the endpoint. It costs an additional round
// trip.
func (f *Fleet) asks(s *side) bool {
	return f.o.Asked != nil && f.o.Mode == ModeEndpoint && len(s.EPPs) > 0 && len(s.direct) > 0 && f.o.Asked(s.Cluster)
}

// Pick asks a picker for an endpoint. ended must be called once with the request's outcome. If the
// picker answers without an endpoint, the error is Refused.
type Pick func(q *Question) (destination string, ended func(status int), err error)

// ResolveEndpoint asks the picker of the request's cluster for one of the announced endpoints:
// picker.RemoteClusters.ResolveEndpoint. If that fails or is refused, it returns a gateway, or the
// earlier choice if there is none.
func (f *Fleet) ResolveEndpoint(r *request.Request, ep *endpoint.Endpoint, headers []request.HeaderSet, now time.Time, pick Pick) (*endpoint.Endpoint, func(status int)) {
	t := f.table.Load()
	i := slices.IndexFunc(t.sides, func(s *side) bool { return s.Cluster == ep.Cluster })
	if i < 0 || !f.asks(t.sides[i]) {
		return nil, nil
	}
	s := t.sides[i]
	q := Question{Cluster: s.Cluster, Request: r}
	for _, h := range headers {
		if h.Name == request.HeaderHop {
			q.Token = h.Value
		}
	}
	var ok bool
	if q.EPP, ok = s.whom(s.EPPs, now); ok {
		if to, ended := f.askOne(s, &q, now, pick); to != nil {
			f.counts.asked.Add(1)
			return to, ended
		}
	}
	f.counts.unasked.Add(1)
	return among(s.gateways, r, ""), nil
}

// askOne asks one picker.
func (f *Fleet) askOne(s *side, q *Question, now time.Time, pick Pick) (*endpoint.Endpoint, func(status int)) {
	q.Timeout = min(time.Duration(askTrips*s.roundTrip()*float64(time.Second))+askWork, askMost)
	if f.o.Timeout > 0 {
		q.Timeout = f.o.Timeout
	}
	to, ended, err := pick(q)
	s.answered(err, now)
	if err != nil {
		return nil, nil
	}
	ep := among(s.direct, q.Request, to)
	if ep == nil {
		ended(0) // it returned an endpoint that was not announced, or that the proxy does not allow
		return nil, nil
	}
	return ep, ended
}

// among returns the endpoint with an address ("" for any) that the proxy allows, or nil.
func among(list []*endpoint.Endpoint, r *request.Request, address string) *endpoint.Endpoint {
	for _, ep := range list {
		if (address == "" || ep.Address == address) && (!r.HasSubset || slices.Contains(r.Subset, ep.Address)) {
			return ep
		}
	}
	return nil
}

// whom returns the picker to ask. ok is false during the pause after failures.
func (a *account) whom(list []federation.Address, now time.Time) (epp federation.Address, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.askAfter) {
		return epp, false
	}
	return list[a.unanswered%len(list)], true
}

// answered records the result of a question. After a failure the next question is sent to another
// picker, after growing pauses.
func (a *account) answered(err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var refused Refused
	switch {
	case err == nil:
		a.askAfter = time.Time{}
	case errors.As(err, &refused) && refused.full():
		a.refusals++
		a.refusedAt, a.full = now, now.Add(backoff(a.refusals))
	default:
		a.unanswered++
		a.askAfter = now.Add(min(askPause, mostBackoff))
	}
}

// askPause is the first pause after a picker did not answer.
const askPause = time.Second
