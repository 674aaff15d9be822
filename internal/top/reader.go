package top

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// readTime limits how long a replica may take to answer.
const readTime = 5 * time.Second

// errSeveral is the error of a replica that serves several pools, if none is selected.
var errSeveral = errors.New("this replica serves several pools: choose one with --pool")

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
func read(ctx context.Context, addresses []string, pool string) readings {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	out := readings{at: time.Now(), list: make([]reading, len(addresses))}
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			var st struct {
				server.Status
				Pools []struct{} `json:"pools"` // nil: the status is that of one pool
			}
			err := admin.Client(address).Get(ctx, admin.PoolPath(pool)+"/status", &st)
			if err == nil && st.Pools != nil {
				err = errSeveral
			}
			if out.list[i] = (reading{address: address, status: &st.Status}); err != nil {
				out.list[i] = reading{address: address, err: err}
			}
		})
	}
	wg.Wait()
	return out
}
