package rig

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// Defaults of engines.
const (
	KVTokens  = 64_000 // cache size of each engine
	BlockSize = 16     // tokens
)

// Options of a [Rig].
type Options struct {
	Envoy    string // Envoy binary
	Self     string // program of the replicas
	Engines  int
	Prefix   string // of engine names
	Slots    int    // concurrent sequences per engine; default 256
	KVTokens int    // cache tokens per engine; default KVTokens
	Speed    float64
	Replicas int
	Share    string // who reads an engine's events, as serve's --share; "" shares nothing

	Config     string   // of the replicas, "" for the default
	Flags      []string // additional flags
	FailClosed bool     // Envoy's failure mode
}

// Rig starts engines, replicas and Envoy with their files in one folder.
type Rig struct {
	Options
	Dir   string
	Model string // folder of the model files
	Start time.Time

	EnvoyAdmin string // host:port of the admin interface of the last Envoy
}

// New writes the model's files into dir, which must exist.
func New(o Options, dir string) (*Rig, error) {
	r := &Rig{Options: o, Dir: dir, Model: filepath.Join(dir, "model"), Start: time.Now()}
	return r, vocab.New().WriteModel(r.Model)
}

// OpenEngines starts a fleet, writes its endpoints file, and returns the addresses of the engines.
func (r *Rig) OpenEngines() (*fleet.Fleet, []string, error) {
	f, err := fleet.Open(fleet.Options{
		Engines:       r.Engines,
		EndpointsFile: r.endpoints(),
		Engine: sim.Options{
			Speed:  r.Speed,
			Core:   engine.Config{BlockSize: BlockSize, Blocks: cmp.Or(r.KVTokens, KVTokens) / BlockSize, Model: engine.Model70B, MaxSeqs: r.Slots},
			Events: &sim.EventOptions{},
		},
		Customize: func(_ int, o *sim.Options) { o.Name = r.Prefix + o.Name },
	})
	if err != nil {
		return nil, nil, err
	}
	return f, Addresses(f), nil
}

// Addresses returns the host:port of each engine.
func Addresses(f *fleet.Fleet) (list []string) {
	for _, e := range f.Engines() {
		list = append(list, e.Addr())
	}
	return list
}

func (r *Rig) endpoints() string { return filepath.Join(r.Dir, "endpoints.yaml") }

// StartEnvoy starts an Envoy, waits until it is live, and returns its URL.
func (r *Rig) StartEnvoy(ctx context.Context, name string, p envoyconf.Params) (*Process, string, error) {
	ports, err := FreePorts(2)
	if err != nil {
		return nil, "", err
	}
	p.FailClosed = r.FailClosed
	p.Listen, p.Admin = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	r.EnvoyAdmin = p.Admin
	conf, err := envoyconf.Render(p)
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(r.Dir, name+".yaml")
	if err := os.WriteFile(path, conf, 0o600); err != nil {
		return nil, "", err
	}
	e, err := Start(r.Dir, name, r.Envoy, "-c", path, "--concurrency", "1", "--log-level", "warn", "--disable-hot-restart")
	if err != nil {
		return nil, "", err
	}
	wait, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	if err := e.WaitHTTP(wait, "http://"+p.Admin+"/ready"); err != nil {
		e.Kill()
		return nil, "", err
	}
	return e, "http://" + p.Listen, nil
}

// NewReplica allocates ports for replica i. It does not start it.
func (r *Rig) NewReplica(i int, flags ...string) (*Replica, error) {
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(k int) string { return fmt.Sprintf("127.0.0.1:%d", ports[k]) }
	name := fmt.Sprintf("replica-%d", i+1)
	return &Replica{
		Process: &Process{Name: name}, ExtProc: at(0), Admin: at(2), Args: append([]string{
			"serve", "--listen", at(0), "--health", at(1), "--admin", at(2),
			"--endpoints", r.endpoints(), "--model", vocab.Name + "=" + r.Model, "--name", name,
		}, flags...),
	}, nil
}

// StartReplica starts p, which must not be running. It does not wait until p is ready.
func (r *Rig) StartReplica(p *Replica) error {
	started, err := Start(r.Dir, p.Name, r.Self, p.Args...)
	if err == nil {
		p.Process, p.Killed = started, false
	}
	return err
}

// StartReplicas starts the replicas with additional flags and waits until they are ready. With an
// error it returns the replicas that it started.
func (r *Rig) StartReplicas(ctx context.Context, flags func(i int) []string) ([]*Replica, error) {
	var all []*Replica
	more := r.Flags
	if r.Config != "" {
		path := filepath.Join(r.Dir, "config.yaml")
		if err := os.WriteFile(path, []byte(r.Config), 0o600); err != nil {
			return nil, err
		}
		more = append([]string{"--config", path}, more...)
	}
	for i := range r.Replicas {
		p, err := r.NewReplica(i, append(flags(i), more...)...)
		if err != nil {
			return all, err
		}
		if err := r.StartReplica(p); err != nil {
			return all, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.ready(ctx); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Restart starts a replica that has ended and waits until it is ready.
func (r *Rig) Restart(ctx context.Context, p *Replica) error {
	if err := r.StartReplica(p); err != nil {
		return err
	}
	return p.ready(ctx)
}

// StopReplicas drains all replicas at the same time. When ctx is done it kills them.
func StopReplicas(ctx context.Context, replicas []*Replica) {
	var wg sync.WaitGroup
	for _, p := range replicas {
		wg.Go(func() {
			if ctx.Err() != nil {
				p.Kill()
			}
			p.Stop(5 * time.Second)
		})
	}
	wg.Wait()
}

// Pickers returns the ext_proc addresses of the replicas.
func Pickers(replicas []*Replica) (list []string) {
	for _, p := range replicas {
		list = append(list, p.ExtProc)
	}
	return list
}
