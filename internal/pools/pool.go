package pools

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// Delays between attempts to open a pool, doubled from the first to the longest.
const (
	firstRetry = time.Second
	longRetry  = 15 * time.Second
)

// States of a pool that has no server, next to the states of a server.
const (
	stateOpening = "opening"
	stateInvalid = "invalid"
)

// pool is one pool while it is wanted, and until it has ended.
type pool struct {
	s      *Server
	entry  Entry
	before *pool // has the same name and must end first; nil: none
	budget *budget.Budget
	cancel context.CancelFunc
	// stopping is done once the pool is no longer wanted, and done is closed once it has ended.
	stopping context.Context
	done     chan struct{}

	mu     sync.Mutex
	srv    *server.Server // nil: not open
	err    error          // why it is not open; nil: not tried yet, or open
	ending bool
}

// run opens the pool, with retries, and ends it when ctx is done.
func (p *pool) run() {
	ctx := p.stopping
	defer close(p.done)
	if p.before != nil {
		<-p.before.done
		p.before = nil
	}
	log := p.s.o.Process.Log.With("pool", p.entry.Name)
	for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, longRetry) {
		srv, err := p.open()
		if err == nil {
			p.set(srv, nil)
			<-ctx.Done()
			break
		}
		if was := p.failure(); was == nil || was.Error() != err.Error() {
			log.Error("pool cannot be served, the others are not affected", "error", err)
		}
		p.set(nil, err)
		if p.entry.Problem != "" { // only a new file helps
			<-ctx.Done()
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	p.end()
}

// over reports whether the pool is no longer wanted.
func (p *pool) over() bool { return p.stopping.Err() != nil }

// end drains the pool's server and stops it.
func (p *pool) end() {
	p.mu.Lock()
	srv := p.srv
	p.ending = true
	p.mu.Unlock()
	if srv == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.s.drain())
	defer cancel()
	srv.Drain(ctx)
	if err := srv.Stop(ctx); err != nil {
		p.s.o.Process.Log.Warn("pool did not stop cleanly", "pool", p.entry.Name, "error", err)
	}
	p.set(nil, nil)
}

func (p *pool) set(srv *server.Server, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.srv, p.err = srv, err
}

// server returns the pool's server, nil while there is none.
func (p *pool) server() *server.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.srv
}

func (p *pool) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// open opens the pool's server.
func (p *pool) open() (*server.Server, error) {
	e := &p.entry
	if e.Problem != "" {
		return nil, fmt.Errorf("%s", e.Problem)
	}
	o := p.s.o.Process
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %q: %w", o.Listen, err)
	}
	o.Listen, o.Health = net.JoinHostPort(host, strconv.Itoa(e.Port)), "-"
	o.Log = o.Log.With("pool", e.Name)
	o.Shared = &server.Shared{Pool: e.Name, Self: p.s.self, Budget: p.budget, Files: budget.Files() / p.s.parts()}
	if p.s.bus != nil {
		o.Shared.Bus = p.s.bus.Part(e.Name)
	}
	if e.Config != "" {
		o.Config, o.ConfigText = e.Config, ""
	}
	if e.MaxBody > 0 {
		o.MaxBody = e.MaxBody
	}
	o.Endpoints, o.Models, o.Started = e.Endpoints, e.Models, p.s.startOf()
	o.ModelSource.FolderSetting = "models of pool " + e.Name + " in the file of --pools"
	for _, dir := range []*string{&o.StateDir, &o.FlightDir} {
		if *dir != "" {
			*dir = filepath.Join(*dir, e.Name)
		}
	}
	if o.Endpoints == "" {
		if p.s.o.Source == nil {
			return nil, fmt.Errorf("pool %s has no endpoints file, and outside of Kubernetes there is no InferencePool to read instead", e.Name)
		}
		if o.Source, err = p.s.o.Source(e.Name); err != nil {
			return nil, err
		}
	}
	return server.Open(o)
}

// status describes the pool.
func (p *pool) status() PoolStatus {
	p.mu.Lock()
	srv, err, ending := p.srv, p.err, p.ending
	p.mu.Unlock()
	st := PoolStatus{Name: p.entry.Name, Port: p.entry.Port, State: stateOpening}
	switch {
	case srv != nil:
		full := srv.Status()
		st.State, st.Reason, st.Endpoints = full.State, full.Reason, len(full.Endpoints)
		st.Address = srv.ExtProcAddr().String()
		for _, f := range full.Problems {
			if f.Severity != "notice" {
				st.Problems++
			}
		}
	case err != nil:
		st.State, st.Reason = stateInvalid, err.Error()
	}
	if ending {
		st.State = "draining"
	}
	return st
}

// ready reports whether the pool accepts requests, and started whether the process need not wait for
// it any longer.
func (p *pool) ready() (ready, started bool) {
	p.mu.Lock()
	srv, err := p.srv, p.err
	p.mu.Unlock()
	if srv == nil {
		return false, err != nil
	}
	return srv.Ready()
}
