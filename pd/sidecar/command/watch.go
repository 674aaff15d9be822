package command

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// current is the latest Targets from the files. It is safe for concurrent use.
type current struct {
	p atomic.Pointer[sidecar.Targets]
}

// Allowed implements sidecar.Targets.
func (c *current) Allowed(h http.Header, prefill, encode []string) (p, e []string) {
	return (*c.p.Load()).Allowed(h, prefill, encode)
}

// Continuation implements sidecar.Targets.
func (c *current) Continuation(h http.Header, list []string) []string {
	return (*c.p.Load()).Continuation(h, list)
}

// Source implements sidecar.Targets.
func (c *current) Source(address string) bool { return (*c.p.Load()).Source(address) }

// follow returns targets that start as t and follow changes of the files until ctx ends. Unreadable
// files change nothing. The caller waits for the group.
func (f *flags) follow(ctx context.Context, t sidecar.Targets, wg *sync.WaitGroup) sidecar.Targets {
	c := new(current)
	c.p.Store(&t)
	var mu sync.Mutex
	said := ""
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		t, err := f.targets()
		if err != nil {
			if text := err.Error(); text != said {
				said = text
				f.log.Warn("list of allowed engines unchanged", "error", err)
			}
			return
		}
		said = ""
		c.p.Store(&t)
	}
	for _, file := range []string{f.endpoints, f.verifyKeys} {
		if file != "" {
			wg.Go(func() { discovery.Watch(ctx, file, discovery.WatchOptions{Log: f.log}, look) })
		}
	}
	return c
}
