package demo

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// group is a stage: engines, replicas and an Envoy before them.
type group struct {
	*run
	fleet *sim.Fleet
	list  []*replica
	url   string // of Envoy
}

// stage starts a group, calls play and ends everything.
func (o Options) stage(ctx context.Context, c QualityCase, play func(*group) error) error {
	dir, err := os.MkdirTemp("", "grapevine-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g := &group{run: &run{o: o, dir: dir, model: filepath.Join(dir, "model"), start: time.Now()}}
	if err := vocab.New().WriteModel(g.model); err != nil {
		return err
	}
	fleet, addrs, err := g.engines()
	if err != nil {
		return err
	}
	defer fleet.Close()
	g.fleet = fleet
	flags, err := g.connect(c.Sharing)
	if err != nil {
		return err
	}
	policy, err := g.plugins(c.Policy)
	if err != nil {
		return err
	}
	g.list, err = g.replicas(ctx, func(i int) []string { return append(flags(i), policy...) })
	defer func() { stopReplicas(ctx, g.list) }()
	if err != nil {
		return err
	}
	e, url, err := g.envoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: pickers(g.list)})
	if err != nil {
		return err
	}
	defer e.stop(3 * time.Second)
	g.url = url
	return play(g)
}

// Stage is engines in this process, replicas and an Envoy before them, for what is shown in
// other packages.
type Stage struct {
	g     *group
	proxy *process
}

// OpenStage starts a stage of o in a folder that is there. flags are more flags of replica
// i, gateways those of other clusters that Envoy knows.
// After an error the stage holds what was started, for Close.
func OpenStage(ctx context.Context, o Options, dir string, flags func(i int) []string, gateways []string) (*Stage, error) {
	s := &Stage{g: &group{run: &run{o: o, dir: dir, model: filepath.Join(dir, "model"), start: time.Now()}}}
	if err := vocab.New().WriteModel(s.g.model); err != nil {
		return s, err
	}
	fleet, addrs, err := s.g.engines()
	if err != nil {
		return s, err
	}
	s.g.fleet = fleet
	share, err := s.g.sharing()
	if err != nil {
		return s, err
	}
	if s.g.list, err = s.g.replicas(ctx, func(i int) []string { return append(share(i), flags(i)...) }); err != nil {
		return s, err
	}
	s.proxy, s.g.url, err = s.g.envoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: pickers(s.g.list), Gateways: gateways})
	return s, err
}

// URL is that of Envoy.
func (s *Stage) URL() string { return s.g.url }

// Engines returns the engines' names.
func (s *Stage) Engines() (list []string) {
	for _, e := range s.g.fleet.Engines() {
		list = append(list, e.Name())
	}
	return list
}

// Read fills to with the part of replica i's status that it describes.
func (s *Stage) Read(i int, to any) error { return s.g.list[i].read(to) }

// Tail returns the last lines of replica i's output.
func (s *Stage) Tail(i int) string { return s.g.list[i].tail(8) }

// Kill ends all at once, as when a machine dies.
func (s *Stage) Kill() error {
	s.proxy.kill()
	for _, p := range s.g.list {
		p.kill()
		p.killed = true
	}
	return s.g.fleet.Close()
}

// Close ends what was started.
func (s *Stage) Close(ctx context.Context) {
	s.proxy.stop(3 * time.Second)
	stopReplicas(ctx, s.g.list)
	if s.g.fleet != nil {
		_ = s.g.fleet.Close()
	}
}

// last returns after a time, or after Options.answers.
func (r *run) last(ctx context.Context, d time.Duration, runners ...*workload.Runner) error {
	if r.o.answers == 0 {
		return pause(d)(ctx)
	}
	answered := func() (n uint64) {
		for _, w := range runners {
			t := w.Tally()
			n += t.Requests - failures(&t)
		}
		return n
	}
	for end := answered() + r.o.answers; answered() < end; {
		if err := pause(flowSampling)(ctx); err != nil {
			return err
		}
	}
	return nil
}
