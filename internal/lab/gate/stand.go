package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// Config names the programs and files of a measurement.
type Config struct {
	Self  string // the program grapevine
	Lab   string // the program grapevine-lab, which serves the no-op
	Model string // folder of a real model's tokenizer files
	Envoy string // an Envoy binary; only full measurements need it
	Dir   string // for logs and generated files
}

// Stand describes the replicas and engines of a group of rows.
type Stand struct {
	Endpoints, Holders int
	Members            int // replicas of one gossip group; 0 or 1: one replica alone
	Flags              []string
}

// running is a started Stand.
type running struct {
	Stand
	conf    Config
	dir     string
	model   *prompt.Model
	engines *engines
	members []*member
	stored  map[int]bool // body sizes whose prompts are in the engines' caches
}

// member is one replica of a stand.
type member struct {
	*rig.Process
	extProc, admin string
}

func (m *member) pid() int { return m.Cmd.Process.Pid }

// start starts engines and replicas, and waits until the replicas are ready.
func (s Stand) start(ctx context.Context, conf Config, model *prompt.Model) (*running, error) {
	r := &running{Stand: s, conf: conf, model: model, stored: map[int]bool{}}
	var err error
	if r.dir, err = os.MkdirTemp(conf.Dir, "stand-"); err != nil {
		return nil, err
	}
	if r.engines, err = openEngines(s.Holders); err != nil {
		return nil, err
	}
	if err := r.engines.write(r.endpoints(), s.Endpoints); err != nil {
		r.close()
		return nil, err
	}
	flags := func(int) []string { return nil }
	if s.Members > 1 {
		share := &rig.Rig{Options: rig.Options{Replicas: s.Members, Share: "auto"}, Dir: r.dir}
		if flags, err = share.Sharing(); err != nil {
			r.close()
			return nil, err
		}
	}
	for i := range max(s.Members, 1) {
		m, err := r.startMember(fmt.Sprint("member-", i), flags(i)...)
		if err != nil {
			r.close()
			return nil, err
		}
		r.members = append(r.members, m)
	}
	for _, m := range r.members {
		if err := m.wait(ctx); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func (r *running) endpoints() string { return filepath.Join(r.dir, "endpoints.yaml") }

func (r *running) startMember(name string, flags ...string) (*member, error) {
	ports, err := rig.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(k int) string { return fmt.Sprintf("127.0.0.1:%d", ports[k]) }
	args := append([]string{"serve", "--listen", at(0), "--health", at(1), "--admin", at(2), "--name", name,
		"--endpoints", r.endpoints(), "--model", Model + "=" + r.conf.Model, "--log-level", "warn", "--probe-idle", "0"}, r.Flags...)
	p, err := rig.Start(r.dir, name, r.conf.Self, append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	return &member{p, at(0), at(2)}, nil
}

func (m *member) wait(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, rig.StartLimit)
	defer cancel()
	return m.WaitHTTP(wait, "http://"+m.admin+"/readyz")
}

func (m *member) replica() *rig.Replica { return &rig.Replica{Process: m.Process, Admin: m.admin} }

func (r *running) close() {
	for _, m := range r.members {
		m.Kill()
	}
	r.engines.close()
}

// store has the holders publish the prompts of the load, and waits until every replica has them.
func (r *running) store(ctx context.Context, o bench.Options, c *bench.Client) error {
	if r.Holders == 0 || r.stored[o.BodySize] {
		return nil
	}
	r.stored[o.BodySize] = true
	var prompts [][]uint32
	blocks := 0
	for n := range uint64(o.Conversations) {
		text, _, err := r.model.Render(ctx, nil, c.Body(n), prompt.KindChat)
		if err != nil {
			return err
		}
		prompts = append(prompts, r.model.EncodeRendered(nil, text))
		blocks += len(prompts[n]) / blockTokens
	}
	before := make([]int, len(r.members))
	for i, m := range r.members {
		st, err := m.replica().Status()
		if err != nil {
			return err
		}
		before[i] = st.Index.Entries
	}
	r.engines.fill(prompts)
	deadline := time.Now().Add(2 * time.Minute)
	// Prompts share their first blocks, so half of the entries is enough.
	want := blocks * r.Holders / 2
	for i, m := range r.members {
		for {
			st, err := m.replica().Status()
			if err != nil {
				return err
			}
			if st.Index.Entries-before[i] >= want && st.Exact() >= r.Holders {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("gate: %s has %d new index entries of %d and %d exact endpoints of %d", m.Name, st.Index.Entries-before[i], want, st.Exact(), r.Holders)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

// startNoop starts the no-op server as a separate process.
func startNoop(ctx context.Context, conf Config) (*member, error) {
	ports, err := rig.FreePorts(1)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("127.0.0.1:%d", ports[0])
	p, err := rig.Start(conf.Dir, "noop", conf.Lab, "noop", "--listen", at, "--destination", address(0)+":8000")
	if err != nil {
		return nil, err
	}
	m := &member{Process: p, extProc: at}
	c, err := bench.Open(ctx, bench.Options{Target: at, TLS: bench.SelfSigned(), Connections: 1, Concurrency: 1})
	if err != nil {
		p.Kill()
		return nil, errors.Join(err, errors.New(p.Tail(5)))
	}
	c.Close()
	return m, nil
}
