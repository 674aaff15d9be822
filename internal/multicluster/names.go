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
	resolvePace = 10 * time.Second // how long an address of a name counts
	resolveTime = time.Second      // for one name
	maxNames    = 1024             // that are remembered
	maxLookups  = 8                // at the same time
)

// resolver finds the addresses behind names and remembers them. It never waits for one:
// other clusters choose the names, and may choose such as nobody answers for.
type resolver struct {
	now     func() time.Time
	lookup  func(ctx context.Context, hostPort string) []netip.AddrPort
	changed atomic.Bool // since whoever asks has looked

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}

	mu    sync.Mutex
	known map[string]*resolved
}

type resolved struct {
	at, used time.Time // looked up; asked for
	asking   bool
	list     []netip.AddrPort
}

func newResolver() *resolver {
	r := &resolver{now: time.Now, lookup: lookup, slots: make(chan struct{}, maxLookups), known: map[string]*resolved{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// close ends all lookups. resolve is not called afterwards.
func (r *resolver) close() {
	r.cancel()
	r.wg.Wait()
}

// resolve returns the addresses of a host:port as far as they are known, and has them
// looked up when that was long ago; changed says when it pays to ask again. Of a name that
// cannot be resolved the last ones count.
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
		default: // at one of the next times
			r.changed.Store(true)
		}
	}
	return n.list
}

// ask looks a name up.
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
	slices.SortFunc(list, netip.AddrPort.Compare) // name servers answer in turns
	return list
}
