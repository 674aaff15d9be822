package top

import (
	"context"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// readTime limits how long a replica may take to answer.
const readTime = 5 * time.Second

// reading is what one replica answered.
type reading struct {
	address string
	status  *server.Status // nil if err is set
	err     error
}

// readings are the answers of all asked replicas at one time.
type readings struct {
	at   time.Time
	list []reading
}

// read asks all replicas at once.
func read(ctx context.Context, addresses []string) readings {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	out := readings{at: time.Now(), list: make([]reading, len(addresses))}
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			var st server.Status
			out.list[i] = reading{address: address, status: &st}
			if err := admin.Client(address).Get(ctx, "/status", &st); err != nil {
				out.list[i] = reading{address: address, err: err}
			}
		})
	}
	wg.Wait()
	return out
}
