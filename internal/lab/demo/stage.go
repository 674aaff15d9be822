package demo

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// group is a stage: engines, replicas and an Envoy before them.
type group struct {
	*run
	fleet *sim.Fleet
	list  []*replica
	url   string // of Envoy
}

// stage starts a group, calls play and ends everything.
func (o Options) stage(ctx context.Context, s Sharing, play func(*group) error) error {
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
	flags, err := g.connect(s)
	if err != nil {
		return err
	}
	g.list, err = g.replicas(ctx, flags)
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
