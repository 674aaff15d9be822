package gate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestReload: when rules change while requests wait, none is lost or wrongly dispatched, waiting
// ones follow the new rules, and permits granted under the old ones are returned.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := func(places int64, o rules.Options) *Config {
			return &Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: places}, Queue: func() rules.Options { return o }}
		}
		g, err := New(Options{Pool: pool(1)})
		if err != nil {
			t.Fatal(err)
		}
		g.Configure(config(2, rules.Options{}))
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan struct{})
		go func() { defer close(stopped); g.Run(ctx) }()
		var held []picker.Permit
		for range 2 {
			p, err := pass(ctx, g, asks("a"))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		type went struct {
			name  string
			place picker.Permit
		}
		gone := make(chan went, 20)
		for i := range 8 { // six of a, then two of b
			name := "a"
			if i >= 6 {
				name = "b"
			}
			go func() {
				p, err := pass(context.Background(), g, asks(name))
				if err != nil {
					t.Error(err)
				}
				gone <- went{name, p}
			}()
			synctest.Wait()
		}
		state := func(what string, places, inFlight int64, waiting int) {
			t.Helper()
			time.Sleep(time.Second) // synctest time
			synctest.Wait()
			if s := g.Status()[0]; s.Permits != places || s.InFlight != inFlight || s.Waiting != waiting {
				t.Errorf("%s: %d of %d permits held, %d waiting; want %d of %d, %d", what, s.InFlight, s.Permits, s.Waiting, inFlight, places, waiting)
			}
		}
		state("full", 2, 2, 8)
		g.Configure(config(1, rules.Options{}))
		state("a smaller pool", 1, 2, 8)
		g.Configure(config(4, rules.Options{Default: rules.Band{Fairness: rules.Places}}))
		state("a larger pool, by turns", 4, 4, 6)
		names := []string{(<-gone).name, (<-gone).name}
		if !slices.Contains(names, "b") {
			t.Errorf("dispatched %v, want one of b too", names)
		}
		for _, p := range held {
			g.Leave(p, 1)
			g.Leave(p, 1) // the second call has no effect, also for permits from earlier rules
		}
		state("two have ended", 4, 4, 4)
		g.Configure(config(4, rules.Options{MaxRequests: 4}))
		state("a limit", 4, 4, 4)
		if _, err := pass(ctx, g, asks("a")); err == nil {
			t.Error("a request over the limit was queued")
		}
		g.Configure(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(gone) != 6 {
			t.Errorf("%d of 6 dispatched after queueing was disabled", len(gone))
		}
		for range len(gone) {
			g.Leave((<-gone).place, 1)
		}
		stop()
		<-stopped
	})
}

// TestReloadUnderway: continuous rule changes while requests arrive, run and leave lose no request
// and leave nothing held.
func TestReloadUnderway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Options{Pool: pool(2)})
		if err != nil {
			t.Fatal(err)
		}
		configure := func(i int) {
			o := rules.Options{Default: rules.Band{Fairness: rules.Fairness(i % 4), Ordering: rules.Ordering(i / 4 % 4)}}
			g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: int64(1 + i%3)}, Queue: func() rules.Options { return o }})
		}
		configure(0)
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan struct{})
		go func() { defer close(stopped); g.Run(ctx) }()
		ended := make(chan error, 300)
		for i := range 300 {
			go func() {
				time.Sleep(time.Duration(i%50) * time.Millisecond)
				mine, leave := context.WithTimeout(context.Background(), time.Duration(1+i%7)*200*time.Millisecond)
				defer leave()
				p, err := pass(mine, g, asks(fmt.Sprint(i%5)))
				if err == nil {
					time.Sleep(time.Duration(1+i%20) * time.Millisecond)
					g.Leave(p, 1)
				}
				ended <- err
			}()
		}
		for i := range 200 {
			time.Sleep(7 * time.Millisecond)
			configure(i)
		}
		served := 0
		for range 300 {
			if <-ended == nil {
				served++
			}
		}
		if served < 100 {
			t.Errorf("%d of 300 served", served)
		}
		if s := g.Status()[0]; s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%d waiting, %d permits held after all have ended", s.Waiting, s.InFlight)
		}
		stop()
		<-stopped
	})
}
