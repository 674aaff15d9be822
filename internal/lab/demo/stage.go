package demo

import (
	"context"
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// group is a stage under way.
type group struct {
	*rig.Stage
	o Options
}

// stage starts a group, calls play and ends everything.
func (o Options) stage(ctx context.Context, c QualityCase, play func(*group) error) error {
	dir, err := os.MkdirTemp("", "grapevine-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := rig.Open(ctx, o.Options, dir, func(r *rig.Rig) (func(i int) []string, error) { return c.flags(r) }, nil)
	if err == nil {
		err = play(&group{Stage: s, o: o})
	}
	s.Close(ctx) // what was started, after an error too
	return err
}

// OpenStage starts a stage of o in a folder that is there, for what is shown in other
// packages. flags are more flags of replica i, gateways those of other clusters that Envoy
// knows. After an error the stage holds what was started, for Close.
func OpenStage(ctx context.Context, o Options, dir string, flags func(i int) []string, gateways []string) (*rig.Stage, error) {
	return rig.Open(ctx, o.Options, dir, func(r *rig.Rig) (func(i int) []string, error) {
		share, err := r.Sharing()
		return func(i int) []string { return append(share(i), flags(i)...) }, err
	}, gateways)
}

// last returns after a time, or after Options.answers.
func (g *group) last(ctx context.Context, d time.Duration, runners ...*workload.Runner) error {
	if g.o.answers == 0 {
		return pause(d)(ctx)
	}
	answered := func() (n uint64) {
		for _, w := range runners {
			t := w.Tally()
			n += t.Requests - Failures(&t)
		}
		return n
	}
	for end := answered() + g.o.answers; answered() < end; {
		if err := pause(flowSampling)(ctx); err != nil {
			return err
		}
	}
	return nil
}
