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

// join asks every address that Options.Join leads to and that is no member's
// yet, and keeps the error when none answers.
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

// ask asks those addresses to take us in that are no member's, and returns how
// many did and the last error.
func (b *Bus) ask(ctx context.Context, addrs []string) (joined int, last error) {
	known := map[string]bool{}
	for _, n := range b.nodes.all() {
		known[n.Address()] = true
	}
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

// resolve returns the addresses behind Options.Join and those of Options.Found, and
// the last error of either.
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

// rejoin joins again and again: names change their addresses, and halves of a
// group that were apart for long forget each other.
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
			b.opt.Logger.Debug("a member that went does not answer", "error", err)
		}
		if (len(b.opt.Join) > 0 || b.opt.Found != nil) && (b.list.NumMembers() <= 1 || now.Sub(last) >= b.opt.Rejoin) {
			last = now
			b.join(ctx)
		}
	}
}

// departed holds the addresses of members that went. Whether they left, died or
// are behind a partition, memberlist does not say; so they are asked again, less
// and less often. Where there are too many, those that went first are forgotten: the
// addresses of pods that are long gone keep nobody out who is cut off for a moment.
type departed struct {
	mu sync.Mutex
	of map[string]departure
}

type departure struct{ at, asked time.Time }

const (
	maxDeparted    = 64
	forgetDeparted = time.Hour
	maxDue         = 4 // asked at once: each may take TCPTimeout, and joining by name waits
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

// earlier orders addresses by when their members went.
func (d *departed) earlier(a, b string) int {
	return cmp.Or(d.of[a].at.Compare(d.of[b].at), strings.Compare(a, b))
}

func (d *departed) remove(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, addr)
}

// due returns the addresses to ask now, at most maxDue: after a tenth of the time
// that they have been gone, and once every most where that is less; first those that have
// waited longest for that.
func (d *departed) due(now time.Time, most time.Duration) (addrs []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waited := map[string]float64{} // in times of what they should
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
