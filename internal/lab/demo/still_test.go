package demo

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestReplicaStandsStill stops one of three replicas for ten seconds under load behind a real
// Envoy. No replica may take an engine out of service, then or later.
func TestReplicaStandsStill(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := Options{Options: rig.Options{Envoy: parts.Envoy(t), Self: program(t), Engines: 4, Replicas: 3, Share: "partitioned", Slots: 8, Speed: 1}, Out: &out}
	err := o.stage(t.Context(), QualityCase{Sharing: rig.Shared}, func(g *group) error {
		load := workload.StartPaced(g.URL, 8)
		defer load.Stop()
		f := &faultsRun{group: g}
		begun := time.Now()
		if err := f.every(t.Context(), rig.StartLimit, func(time.Time) bool {
			return time.Since(begun) > 4*time.Second && f.trusted()
		}); err != nil {
			return err
		}
		watch := func(d time.Duration, list []*rig.Replica) error {
			some := &faultsRun{group: &group{Stage: &rig.Stage{List: list}}}
			return f.every(t.Context(), d, func(time.Time) bool {
				if n := others(some.states(), ""); n > 0 {
					t.Errorf("%d engines are out, and nothing is wrong with them", n)
				}
				return t.Failed()
			})
		}
		still := g.List[0].Cmd.Process
		if err := still.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := watch(10*time.Second, g.List[1:])
		if err := still.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		if err == nil {
			err = watch(6*time.Second, g.List)
		}
		if s := load.Between(begun, time.Now()); s.Requests == s.Failed {
			t.Errorf("%d of %d requests failed", s.Failed, s.Requests)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
