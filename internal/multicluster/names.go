package multicluster

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	resolvePace = 10 * time.Second // lifetime of a name's addresses
	resolveTime = time.Second      // per name
	maxNames    = 1024             // cached
	maxLookups  = 8                // concurrent
)

// resolver resolves and caches names. It never blocks: other clusters choose the names, whose name
// servers may not answer.
type resolver struct {
	now     func() time.Time
	lookup  func(ctx context.Context, hostPort string) []netip.AddrPort
	changed atomic.Bool // since the caller last checked

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}

	mu    sync.Mutex
	known map[string]*resolved
}

type resolved struct {
	at, used time.Time // last lookup; last use
	asking   bool
	list     []netip.AddrPort
}

func newResolver() *resolver {
	r := &resolver{now: time.Now, lookup: lookup, slots: make(chan struct{}, maxLookups), known: map[string]*resolved{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// close cancels all lookups. resolve must not be called afterwards.
func (r *resolver) close() {
	r.cancel()
	r.wg.Wait()
}

// resolve returns the known addresses of a host:port and starts a lookup if they are old; changed
// then signals that it is worth calling again. If a lookup fails, the last addresses stay.
func (r *resolver) resolve(hostPort string) []netip.AddrPort {
	if addr, err := netip.ParseAddrPort(hostPort); err == nil {
		return []netip.AddrPort{addr}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	n := r.known[hostPort]
	if n == nil {
		if len(r.known) >= maxNames {
			maps.DeleteFunc(r.known, func(_ string, n *resolved) bool { return !n.asking && now.Sub(n.used) > 2*resolvePace })
		}
		if len(r.known) >= maxNames {
			return nil
		}
		n = &resolved{}
		r.known[hostPort] = n
	}
	n.used = now
	if !n.asking && (n.at.IsZero() || now.Sub(n.at) > resolvePace) {
		select {
		case r.slots <- struct{}{}:
			n.asking = true
			r.wg.Go(func() { r.ask(hostPort, n) })
		default: // at a later call
			r.changed.Store(true)
		}
	}
	return n.list
}

// ask looks up a name.
func (r *resolver) ask(hostPort string, n *resolved) {
	ctx, cancel := context.WithTimeout(r.ctx, resolveTime)
	defer cancel()
	list := r.lookup(ctx, hostPort)
	<-r.slots
	r.mu.Lock()
	defer r.mu.Unlock()
	n.at, n.asking = r.now(), false
	if len(list) > 0 && !slices.Equal(list, n.list) {
		n.list = list
		r.changed.Store(true)
	}
}

func lookup(ctx context.Context, hostPort string) (list []netip.AddrPort) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil || n <= 0 || n > 1<<16-1 {
		return nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, ip := range ips {
		list = append(list, netip.AddrPortFrom(ip.Unmap(), uint16(n)))
	}
	slices.SortFunc(list, netip.AddrPort.Compare) // name servers rotate their answers
	return list
}
