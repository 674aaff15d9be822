package rig

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
)

// Stage is engines, replicas and an Envoy before them.
type Stage struct {
	*Rig
	Fleet *fleet.Fleet
	List  []*Replica
	URL   string // of Envoy
	proxy *Process
}

// Open starts a stage of o in dir, which has to be there. flags are further flags of
// replica i, gateways those of other clusters that Envoy knows. After an error the stage
// holds what was started, for Close.
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

// Held counts the requests in all engines.
func (s *Stage) Held() (running, waiting int) {
	for _, e := range s.Fleet.Engines() {
		for _, r := range e.Stats() {
			running, waiting = running+r.Engine.Running, waiting+r.Engine.Waiting
		}
	}
	return running, waiting
}

// Kill ends all at once, as when a machine dies.
func (s *Stage) Kill() error {
	s.proxy.Kill()
	for _, p := range s.List {
		p.Kill()
		p.Killed = true
	}
	return s.Fleet.Close()
}

// Close ends what was started.
func (s *Stage) Close(ctx context.Context) {
	s.proxy.Stop(3 * time.Second)
	StopReplicas(ctx, s.List)
	if s.Fleet != nil {
		_ = s.Fleet.Close()
	}
}
