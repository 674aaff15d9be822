package demo

import (
	"context"
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// group is a running stage.
type group struct {
	*rig.Stage
	o Options
}

// stage starts a group, calls play and stops all processes.
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
	s.Close(ctx) // also stops the parts that were started before an error
	return err
}

// last returns after a time, or after Options.answers answers.
func (g *group) last(ctx context.Context, d time.Duration, runners ...*workload.Runner) error {
	if g.o.answers == 0 {
		return pause(d)(ctx)
	}
	answered := func() (n uint64) {
		for _, w := range runners {
			t := w.Totals()
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
