package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// steady plays short sessions until during has returned, and returns the totals. during can wait
// for n more answers.
func (r *rig) steady(during func(more func(n uint64))) workload.Totals {
	r.t.Helper()
	kind := talk
	kind.SharedTokens = 500
	w, err := workload.Start(workload.Options{
		Source: workload.NewSource(kind, 11, vocab.Name, .3), Client: r.client, Users: 8, Seed: 11, Timeout: patience,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	during(func(n uint64) {
		for until := w.Totals().Requests + n; w.Totals().Requests < until; {
			before := w.Totals().Requests
			testkit.Await(r.t, "an answer", func() bool { return w.Totals().Requests > before })
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.Stop(ctx)
	t := w.Totals()
	if t.Errors+t.Wrong+t.Aborted > 0 {
		r.t.Errorf("%d requests, %d failed, %d wrong, %d unanswered, the last: %v", t.Requests, t.Errors, t.Wrong, t.Aborted, w.LastError())
	}
	return t
}

// TestReplicasKilled checks that kill -9 of each replica in turn fails no request in the resilient
// configuration.
func TestReplicasKilled(t *testing.T) {
	r := open(t, rigOptions{replicas: 2, children: true})
	tally := r.steady(func(more func(uint64)) {
		for _, c := range r.childs {
			more(200)
			c.kill()
		}
		more(200)
	})
	t.Logf("%d requests", tally.Requests)
}

// TestDrain checks that SIGTERM to a replica under load fails no request in either configuration.
func TestDrain(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			r := open(t, rigOptions{kind: kind, replicas: 2, children: true})
			r.steady(func(more func(uint64)) {
				more(200)
				if err := r.childs[0].terminate(); err != nil {
					t.Errorf("the replica ended with %v", err)
				}
				more(200)
			})
			r.clean()
		})
	}
}

// TestEndpointsReload checks that an engine that is added to the endpoints file gets requests, and
// one that is removed gets no more.
func TestEndpointsReload(t *testing.T) {
	r := open(t, rigOptions{engines: 3, engine: slow()})
	s, seed := r.servers[0], uint64(0)
	uses := func(want ...string) {
		t.Helper()
		r.listOnly(want)
		testkit.Await(t, "the file is read", func() bool { return len(s.Status().Endpoints) == len(want) && s.Status().State == "ready" })
		seed++ // not cached anywhere
		r.hang(faults.HangEngine)
		done := make(chan workload.Totals)
		go func() {
			done <- r.run(workload.Options{Source: workload.NewSource(talk, seed, vocab.Name, .5), Users: 8, Requests: 80})
		}()
		testkit.Await(t, "every user waits for an engine", func() bool { return r.inFlight(0) == 8 })
		r.hang(faults.HangNone)
		tally := <-done
		var got []string
		for name := range tally.Engines {
			got = append(got, name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("engines %v answered, the file has %v", got, want)
		}
	}
	uses("engine-0", "engine-1")
	uses("engine-0", "engine-1", "engine-2")
	uses("engine-1", "engine-2")
	r.settle()
	r.clean()
}

// listOnly writes an endpoints file with the named engines.
func (r *rig) listOnly(names []string) {
	r.t.Helper()
	r.write(slices.DeleteFunc(r.fleet.Endpoints(), func(e fleet.Endpoint) bool { return !slices.Contains(names, e.Name) }))
}

// TestEngineGone checks that another engine answers the next turn of a conversation whose engine
// has ended, before its end is detected.
func TestEngineGone(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			r := open(t, rigOptions{kind: kind, engines: 3, engine: slow()})
			session := workload.NewSource(talk, 7, vocab.Name, 1).Session(4)
			said, at := "", ""
			for i := range 3 {
				turn, ok := session.Next(said)
				if !ok {
					t.Fatal("the session is too short")
				}
				o := r.client.Do(context.Background(), turn)
				if o.Err != nil {
					t.Fatalf("turn %d: %v", i, o.Err)
				}
				if i == 2 && o.Engine == at {
					t.Fatalf("%s answered after its end", at)
				}
				if said, at = o.Text, o.Engine; i == 1 {
					r.end(at)
				}
			}
			r.settle()
			if moved := r.metric(0, "grapevine_picker_moved_total"); moved != 1 {
				t.Errorf("%v requests went to another endpoint than the first, want 1", moved)
			}
		})
	}
}

// end closes an engine.
func (r *rig) end(name string) {
	r.t.Helper()
	for _, e := range r.fleet.Engines() {
		if e.Name() == name {
			if err := e.Close(); err != nil {
				r.t.Error(err)
			}
			return
		}
	}
	r.t.Fatalf("no engine %q", name)
}
