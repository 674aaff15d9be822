package rig

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
)

// Stage is a set of engines, replicas and an Envoy.
type Stage struct {
	*Rig
	Fleet *fleet.Fleet
	List  []*Replica
	URL   string // of Envoy
	proxy *Process
}

// Open starts a stage in dir, which must exist. flags returns additional flags of replica i;
// gateways are the gateways of other clusters for Envoy. After an error the stage holds the started
// parts; the caller must close it.
func Open(ctx context.Context, o Options, dir string, flags func(r *Rig) (func(i int) []string, error), gateways []string) (*Stage, error) {
	s := &Stage{}
	var err error
	if s.Rig, err = New(o, dir); err != nil {
		return s, err
	}
	var addrs []string
	if s.Fleet, addrs, err = s.OpenEngines(); err != nil {
		return s, err
	}
	each, err := flags(s.Rig)
	if err != nil {
		return s, err
	}
	if s.List, err = s.StartReplicas(ctx, each); err != nil {
		return s, err
	}
	s.proxy, s.URL, err = s.StartEnvoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: Pickers(s.List), Gateways: gateways})
	return s, err
}

// Held returns the number of running and waiting requests in all engines.
func (s *Stage) Held() (running, waiting int) {
	for _, e := range s.Fleet.Engines() {
		for _, r := range e.Stats() {
			running, waiting = running+r.Engine.Running, waiting+r.Engine.Waiting
		}
	}
	return running, waiting
}

// Kill kills all processes at once, as when a machine dies.
func (s *Stage) Kill() error {
	s.proxy.Kill()
	for _, p := range s.List {
		p.Kill()
		p.Killed = true
	}
	return s.Fleet.Close()
}

// Close stops all processes.
func (s *Stage) Close(ctx context.Context) {
	s.proxy.Stop(3 * time.Second)
	StopReplicas(ctx, s.List)
	if s.Fleet != nil {
		_ = s.Fleet.Close()
	}
}
