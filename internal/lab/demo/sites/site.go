package sites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// site is one cluster.
type site struct {
	*rig.Stage
	name     string
	dir      string
	listen   []string    // federation addresses of its replicas
	gateway  *wan.Wire   // link to its gateway
	controls []*wan.Wire // links to its replicas
	engine   map[string]bool
}

// ways opens the links to a cluster that is not yet started.
func (c *run) ways(name string) (*site, error) {
	s := &site{name: name, dir: filepath.Join(c.dir, name), engine: map[string]bool{}}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	n := c.o.Replicas
	ports, _, err := parts.ReservePorts(2*n + 1)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	if s.gateway, err = wan.Open(at(2*n), func() string { return strings.TrimPrefix(s.URL, "http://") }, delay); err != nil {
		return nil, err
	}
	for i := range n {
		w, err := wan.Open(at(n+i), func() string { return at(i) }, delay)
		if err != nil {
			return s, err
		}
		s.controls, s.listen = append(s.controls, w), append(s.listen, at(i))
	}
	return s, nil
}

// open starts engines, replicas and Envoy.
func (s *site) open(ctx context.Context, o demo.Options, other *site) error {
	var flags [][]string
	for i := range s.listen {
		f, err := s.settings(i, other)
		if err != nil {
			return err
		}
		flags = append(flags, f)
	}
	o.Prefix = s.name + "-"
	var err error
	s.Stage, err = openStage(ctx, o, s.dir, func(i int) []string { return flags[i] }, []string{other.gateway.Addr()})
	if err != nil {
		return err
	}
	for _, e := range s.Fleet.Engines() {
		s.engine[e.Name()] = true
	}
	return nil
}

// kill kills the whole cluster at once.
func (s *site) kill() error {
	s.gateway.Cut() // a dead host accepts no connections
	return s.Kill()
}

// close stops all processes.
func (s *site) close(ctx context.Context) {
	if s.Stage != nil {
		s.Close(ctx)
	}
	for _, w := range append(s.controls, s.gateway) {
		if w != nil {
			w.Close()
		}
	}
}

// federationStatus is the federation part of a replica's status.
type federationStatus struct {
	Elsewhere []struct {
		Cluster string `json:"cluster"`
		Result  string `json:"result"`
	} `json:"remote_clusters"`
	Federation struct {
		Clusters []struct {
			Pools []struct {
				Blocks int `json:"filter_blocks"`
			} `json:"pools"`
		} `json:"clusters"`
		Exports []struct {
			Hot int `json:"hot_blocks"`
		} `json:"exports"`
	} `json:"federation"`
}

// blocks returns the number of hot prompt blocks in other clusters and in this one.
func (s *federationStatus) blocks() (there, here int) {
	for _, c := range s.Federation.Clusters {
		for _, p := range c.Pools {
			there += p.Blocks
		}
	}
	for _, e := range s.Federation.Exports {
		here += e.Hot
	}
	return there, here
}

// awaitReports waits until all of A's replicas have B's hot prompts.
func (c *run) awaitReports(ctx context.Context) error {
	return c.until(ctx, time.Minute, "A has not heard what is hot in B", func() bool {
		hot := 0
		for i := range c.b.listen {
			st := federationStatus{}
			if c.b.List[i].Read(10*time.Second, &st) != nil {
				return false
			}
			_, here := st.blocks()
			hot = max(hot, here)
		}
		for i := range c.a.listen {
			st := federationStatus{}
			if c.a.List[i].Read(10*time.Second, &st) != nil {
				return false
			}
			if there, _ := st.blocks(); float64(there) < .99*float64(hot) {
				return false
			}
		}
		return hot > 0
	})
}

// await waits until all replicas of a cluster report the given state of the other one.
func (c *run) await(ctx context.Context, s *site, as string, most time.Duration) error {
	return c.until(ctx, most, "cluster "+s.name+" does not see the other one as "+as, func() bool {
		for i := range s.listen {
			st := federationStatus{}
			if s.List[i].Read(10*time.Second, &st) != nil || len(st.Elsewhere) != 1 || st.Elsewhere[0].Result != as {
				return false
			}
		}
		return true
	})
}

var errLate = errors.New("not in time")

func (c *run) until(ctx context.Context, most time.Duration, what string, ok func() bool) error {
	for end := time.Now().Add(most); !ok(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w; the last lines of a replica of A:\n%s", what, errLate, c.a.List[0].Tail(8))
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// settings returns the flags of a replica in the federation, and writes its files.
func (s *site) settings(i int, other *site) ([]string, error) {
	var peers []string
	for _, w := range other.controls {
		peers = append(peers, w.Addr())
	}
	at := func(file string) string { return filepath.Join(filepath.Dir(s.dir), file) }
	raw, err := yaml.Marshal(map[string]any{
		"cluster": s.name, "listen": s.listen[i], "lease": lease.String(), "secretFile": at(wan.SecretFile),
		"certFile": at(s.name + ".crt"), "keyFile": at(s.name + ".key"), "caFile": at(wan.CAFile),
		"exports": []any{map[string]any{"pool": "default/llama", "gateways": []any{map[string]string{"address": s.gateway.Addr()}}}},
		"peers":   []any{map[string]any{"name": other.name, "addresses": peers, "export": []string{"default/*"}, "accept": []string{"default/*"}}},
		"use":     map[string]string{"requests": "always"},
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, fmt.Sprintf("federation-%d.yaml", i+1))
	return []string{"--federation-config", path}, os.WriteFile(path, raw, 0o600)
}

// openStage starts a stage in an existing folder. flags returns additional flags of replica i;
// gateways are the gateways of other clusters. After an error the stage holds the started parts;
// the caller must close it.
func openStage(ctx context.Context, o demo.Options, dir string, flags func(i int) []string, gateways []string) (*rig.Stage, error) {
	return rig.Open(ctx, o.Options, dir, func(r *rig.Rig) (func(i int) []string, error) {
		share, err := r.Sharing()
		return func(i int) []string { return append(share(i), flags(i)...) }, err
	}, gateways)
}
