package gossip

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// join asks every address that Options.Join leads to and that is no member's
// yet, and keeps the error when none answers.
func (b *Bus) join(ctx context.Context) {
	addrs, err := b.resolve(ctx)
	known := map[string]bool{}
	for _, n := range b.list.Members() {
		known[n.Address()] = true
	}
	addrs = slices.DeleteFunc(addrs, func(a string) bool { return known[a] })
	joined := 0
	for _, a := range addrs {
		if ctx.Err() != nil {
			break
		}
		n, joinErr := b.list.Join([]string{a})
		joined += n
		if joinErr != nil {
			err = fmt.Errorf("%s: %w", a, joinErr)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joinErr = err
	if joined > 0 {
		b.joinErr = nil
	}
}

// resolve returns the addresses behind Options.Join, and the last error of a
// name that has none.
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
	slices.Sort(addrs)
	return slices.Compact(addrs), last
}

// rejoin joins again and again: names change their addresses, and halves of a
// group that were apart for long forget each other.
func (b *Bus) rejoin(ctx context.Context) {
	if len(b.opt.Join) == 0 {
		return
	}
	for {
		wait := b.opt.Rejoin
		if b.list.NumMembers() <= 1 {
			wait = min(wait, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			b.join(ctx)
		}
	}
}
