package gossip

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// join contacts every address from Options.Join that is not a member yet. It stores the error if
// none answers.
func (b *Bus) join(ctx context.Context) {
	addrs, err := b.resolve(ctx)
	joined, joinErr := b.ask(ctx, addrs)
	if joinErr != nil {
		err = joinErr
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joinErr = err
	if joined > 0 {
		b.joinErr = nil
	}
}

// ask contacts the addresses that are not members yet. It returns how many accepted this member,
// and the last error.
func (b *Bus) ask(ctx context.Context, addrs []string) (joined int, last error) {
	known := b.nodes.known()
	for _, a := range addrs {
		if ctx.Err() != nil || b.leaving.Load() {
			break
		}
		if known[a] {
			continue
		}
		n, err := b.list.Join([]string{a})
		joined += n
		if err != nil {
			last = fmt.Errorf("%s: %w", a, err)
		}
	}
	return joined, last
}

// resolve returns the addresses from Options.Join and Options.Found, and the last error of either.
func (b *Bus) resolve(ctx context.Context) (addrs []string, last error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for _, j := range b.opt.Join {
		host, port, err := hostPort(j, DefaultPort)
		if err != nil {
			last = err
			continue
		}
		ips := []string{host}
		if net.ParseIP(host) == nil {
			if ips, err = b.opt.Resolver.LookupHost(ctx, host); err != nil {
				last = err
				continue
			}
		}
		for _, ip := range ips {
			addrs = append(addrs, net.JoinHostPort(ip, strconv.Itoa(port)))
		}
	}
	if b.opt.Found != nil {
		found, err := b.opt.Found(ctx)
		addrs = append(addrs, found...)
		last = cmp.Or(err, last)
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), last
}

// rejoin joins repeatedly: names change their addresses, and after a long partition the halves of a
// group have removed each other.
func (b *Bus) rejoin(ctx context.Context) {
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(b.opt.Rejoin, time.Second)):
		case <-b.opt.Moved:
			last = time.Time{}
		}
		if b.leaving.Load() {
			return
		}
		now := time.Now()
		if _, err := b.ask(ctx, b.gone.due(now, b.opt.Rejoin)); err != nil {
			b.opt.Logger.Debug("departed member does not answer", "error", err)
		}
		if (len(b.opt.Join) > 0 || b.opt.Found != nil) && (b.list.NumMembers() <= 1 || now.Sub(last) >= b.opt.Rejoin) {
			last = now
			b.join(ctx)
		}
	}
}

// departed holds the addresses of departed members. memberlist does not report whether they left,
// crashed or are partitioned, so they are contacted again at growing intervals. If there are too
// many, the earliest departures are dropped, so that addresses of long-gone pods do not crowd out a
// member that is partitioned for a moment.
type departed struct {
	mu sync.Mutex
	of map[string]departure
}

type departure struct{ at, asked time.Time }

const (
	maxDeparted    = 64
	forgetDeparted = time.Hour
	maxDue         = 4 // contacted at a time: each may take TCPTimeout, and joining by name waits
)

func (d *departed) add(addr string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]departure{}
	}
	d.of[addr] = departure{at: now, asked: now}
	if len(d.of) > maxDeparted {
		delete(d.of, slices.MinFunc(slices.Collect(maps.Keys(d.of)), d.earlier))
	}
}

// earlier orders addresses by the time of departure.
func (d *departed) earlier(a, b string) int {
	return cmp.Or(d.of[a].at.Compare(d.of[b].at), strings.Compare(a, b))
}

func (d *departed) remove(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, addr)
}

// due returns the addresses to contact now, at most maxDue. An address is due after a tenth of the
// time since its departure, or after most if that is less. The most overdue come first.
func (d *departed) due(now time.Time, most time.Duration) (addrs []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waited := map[string]float64{} // as multiples of the intended wait
	for addr, g := range d.of {
		if now.Sub(g.at) > forgetDeparted {
			delete(d.of, addr)
			continue
		}
		wait := max(time.Millisecond, min(now.Sub(g.at)/10, most))
		if waited[addr] = float64(now.Sub(g.asked)) / float64(wait); waited[addr] >= 1 {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, func(a, b string) int { return cmp.Compare(waited[b], waited[a]) })
	addrs = addrs[:min(len(addrs), maxDue)]
	for _, addr := range addrs {
		d.of[addr] = departure{at: d.of[addr].at, asked: now}
	}
	return addrs
}
