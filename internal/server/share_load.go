package server

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Versions of the shared states. A change of an encoding that older replicas
// cannot read gets a new name; fields are only ever appended.
const (
	stateLoad     = "load"
	stateCost     = "cost"
	stateChunks   = "chunks"
	stateSessions = "sessions"
	stateVersion  = 1
)

// loadDelay is how long a change of the book waits for company.
const loadDelay = 5 * time.Millisecond

// loadShare shares the in-flight book: absolute loads per endpoint, written by
// each replica for itself. It is safe for concurrent use.
type loadShare struct {
	s     *Server
	gauge *cluster.Gauge

	mu    sync.Mutex
	dirty map[*endpoint.Endpoint]bool
	wake  chan struct{}

	remote sync.Mutex
	loads  map[string]map[string]endpoint.Load // by endpoint address, by origin
}

func newLoadShare(s *Server) *loadShare {
	l := &loadShare{s: s, dirty: map[*endpoint.Endpoint]bool{}, wake: make(chan struct{}, 1), loads: map[string]map[string]endpoint.Load{}}
	l.gauge = s.node.Gauge(stateLoad, stateVersion, l)
	return l
}

// changed is the book's hook: it notes the endpoint and returns.
func (l *loadShare) changed(ep *endpoint.Endpoint) {
	l.mu.Lock()
	first := len(l.dirty) == 0
	l.dirty[ep] = true
	l.mu.Unlock()
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run sends what changed, a few milliseconds after the first change.
func (l *loadShare) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(loadDelay):
		}
		l.mu.Lock()
		dirty := l.dirty
		l.dirty = make(map[*endpoint.Endpoint]bool, len(dirty))
		l.mu.Unlock()
		now := time.Now()
		for ep := range dirty {
			load := l.s.pool.Book().Local(ep, now)
			if err := l.gauge.Set(ep.Address, appendLoad(nil, load, now)); err != nil {
				l.s.o.Log.Warn("in-flight load not shared", "endpoint", ep.Address, "error", err)
			}
		}
	}
}

func appendLoad(b []byte, l endpoint.Load, now time.Time) []byte {
	for _, v := range [...]int64{l.Requests, l.Waiting, l.Prefill, l.Tokens, l.Context} {
		b = binary.AppendVarint(b, v)
	}
	b = appendFloat(appendFloat(b, l.Pairs), l.Rate)
	age := int64(0)
	if l.LastFirst != 0 {
		age = max(now.UnixNano()-l.LastFirst, 1)
	}
	return appendFloat(binary.AppendVarint(b, age), l.Busy)
}

func readLoad(b []byte, now time.Time) (endpoint.Load, error) {
	w := wire{b: b}
	l := endpoint.Load{Requests: w.count(), Waiting: w.count(), Prefill: w.count(), Tokens: w.count(), Context: w.count()}
	l.Pairs, l.Rate, l.RatesAt = w.float(), w.float(), now.UnixNano()
	if age := w.age(); age > 0 {
		l.LastFirst = now.Add(-age).UnixNano()
	}
	if len(w.b) > 0 { // peers of older versions do not tell it
		l.Busy = w.float()
	}
	if w.bad || l.Pairs < 0 || l.Rate < 0 || l.Busy < 0 {
		return endpoint.Load{}, errWire
	}
	return l, nil
}

// Merge implements cluster.GaugeSink.
func (l *loadShare) Merge(origin string, _ uint64, address string, value []byte) error {
	var load endpoint.Load
	if value != nil {
		var err error
		if load, err = readLoad(value, time.Now()); err != nil {
			return err
		}
	}
	l.remote.Lock()
	defer l.remote.Unlock()
	if value == nil || load.Requests == 0 && load.Rate == 0 {
		delete(l.loads[address], origin)
	} else {
		if l.loads[address] == nil {
			l.loads[address] = map[string]endpoint.Load{}
		}
		l.loads[address][origin] = load
	}
	l.apply(address)
	return nil
}

// Drop implements cluster.GaugeSink: a replica that is gone has nothing in flight.
func (l *loadShare) Drop(origin string) {
	l.remote.Lock()
	defer l.remote.Unlock()
	for address, by := range l.loads {
		if _, ok := by[origin]; ok {
			delete(by, origin)
			l.apply(address)
		}
	}
}

// apply tells the book the sum over the other replicas.
func (l *loadShare) apply(address string) {
	var sum endpoint.Load
	for _, load := range l.loads[address] {
		sum = sum.Add(load)
	}
	if len(l.loads[address]) == 0 {
		delete(l.loads, address)
	}
	if ep := l.s.pool.Snapshot().Lookup(address); ep != nil {
		l.s.pool.Book().SetRemote(ep, sum)
	}
}

// joined applies what is known of endpoints that the pool has just got.
func (l *loadShare) joined(eps []*endpoint.Endpoint) {
	l.remote.Lock()
	defer l.remote.Unlock()
	for _, ep := range eps {
		if len(l.loads[ep.Address]) > 0 {
			l.apply(ep.Address)
		}
	}
}

// left withdraws what this replica said of endpoints that are gone.
func (l *loadShare) left(eps []*endpoint.Endpoint) {
	for _, ep := range eps {
		if err := l.gauge.Set(ep.Address, nil); err != nil {
			l.s.o.Log.Warn("in-flight load not withdrawn", "endpoint", ep.Address, "error", err)
		}
	}
}
