package commands

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestSessions runs the scripts of testdata/sessions against a group of replicas and two engines.
// The second engine does not report its start time. Each step prints the output of status --cluster
// at the first replica, or at replica=N, once the group is quiet. A step with "quiet" prints
// nothing, and a step with "loose" omits the knowledge state. Numbers that vary between runs are
// printed as #.
//
//	replicas N                      start N more replicas
//	ask ENGINE N                    send N new prompts
//	reload                          SIGHUP to all replicas
//	list all | none                 set the content of the endpoints file
//	work ENGINE                     start a long answer
//	silence ENGINE | speak ENGINE   stop and resume its events, on new connections too
//	heal ENGINE                     resume events and end the long answer
//	restart ENGINE
//	stop N                          stop a replica
func TestSessions(t *testing.T) {
	datadriven.Walk(t, "testdata/sessions", func(t *testing.T, path string) {
		t.Parallel()
		s := openSession(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			s.t = t
			words, at, text := make([]string, 0, 2), 0, s.text
			for _, a := range d.CmdArgs {
				switch a.Key {
				case "replica":
					a.Scan(t, 0, &at)
				case "quiet":
					text = func(int) string { return "" }
				case "loose":
					text = func(at int) string { return aKnown.ReplaceAllString(s.text(at), "$1#$2") }
				default:
					words = append(words, a.Key)
				}
			}
			s.do(d.Cmd, words)
			if rewriting() {
				time.Sleep(6 * time.Second)
				return text(at)
			}
			got := ""
			testkit.PollUntil(func() bool { got = text(at); return got == d.Expected })
			return got
		})
	})
}

// session runs engines and replicas.
type session struct {
	t        *testing.T
	dir      string
	fleet    *fleet.Fleet
	replicas []*server.Server
	join     []string
	prompts  int
	faults   map[int]faults.Faults
	working  map[int]context.CancelFunc
	options  func(*server.Options) // changes the options of the next replica; may be nil
}

func openSession(t *testing.T) *session {
	s := &session{t: t, dir: t.TempDir(), faults: map[int]faults.Faults{}, working: map[int]context.CancelFunc{}}
	var err error
	if s.fleet, err = fleet.Open(fleet.Options{
		Engines: 2, EndpointsFile: filepath.Join(s.dir, "endpoints.yaml"),
		Engine: sim.Options{Core: engine.Config{BlockSize: 16, Blocks: 2000}, Speed: 1000, Events: &sim.EventOptions{Ring: 8}},
		Customize: func(i int, o *sim.Options) {
			o.NoProcessMetrics = i == 1
		},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.fleet.Close() })
	if err := vocab.New().WriteModel(filepath.Join(s.dir, "model")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, end := range s.working {
			end()
		}
		for _, r := range s.replicas {
			stopNow(r)
		}
	})
	return s
}

func stopNow(r *server.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Stop(ctx)
}

func (s *session) do(cmd string, words []string) {
	s.t.Helper()
	number := func(i int) (n int) {
		if _, err := fmt.Sscan(words[i], &n); err != nil {
			s.t.Fatalf("%s %v: %v", cmd, words, err)
		}
		return n
	}
	switch cmd {
	case "replicas":
		for range number(0) {
			s.add()
		}
	case "ask":
		for range number(1) {
			s.ask(s.t.Context(), number(0), 1)
		}
	case "reload":
		for _, r := range s.replicas {
			if err := r.Reload(s.t.Context()); err != nil {
				s.t.Error(err)
			}
		}
	case "list":
		s.list(words[0] == "all")
	case "work":
		ctx, cancel := context.WithCancel(context.Background())
		s.working[number(0)] = cancel
		s.fault(number(0), func(f *faults.Faults) { f.Slow = 50_000 })
		go s.ask(ctx, number(0), 1000)
	case "heal":
		s.working[number(0)]()
		s.fault(number(0), func(f *faults.Faults) { f.Slow, f.Events = 0, kvstream.Faults{} })
	case "silence":
		s.fault(number(0), func(f *faults.Faults) { f.Events = kvstream.Faults{Drop: 1, ReplayOff: true} })
	case "speak":
		s.fault(number(0), func(f *faults.Faults) { f.Events = kvstream.Faults{} })
	case "restart":
		if err := s.fleet.Engines()[number(0)].Restart(sim.RestartOptions{}); err != nil {
			s.t.Error(err)
		}
	case "stop":
		stopNow(s.replicas[number(0)])
		s.replicas = slices.Delete(s.replicas, number(0), number(0)+1)
	default:
		s.t.Fatalf("unknown command %q", cmd)
	}
}

func (s *session) fault(i int, change func(*faults.Faults)) {
	f := s.faults[i]
	change(&f)
	s.faults[i] = f
	s.fleet.Engines()[i].SetFaults(f)
}

func (s *session) list(all bool) {
	path := filepath.Join(s.dir, "endpoints.yaml")
	if !all {
		if err := os.WriteFile(path, []byte("endpoints: []\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	if err := s.fleet.WriteEndpoints(path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) add() {
	at := parts.FreeAddress(s.t)
	o := server.Options{
		Name: fmt.Sprintf("replica-%d", len(s.join)), Version: "dev", Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Secret: "s",
		Endpoints: filepath.Join(s.dir, "endpoints.yaml"),
		Models:    []server.ModelOptions{{Name: vocab.Name, Path: filepath.Join(s.dir, "model")}},
		Cluster: server.ClusterOptions{
			Mode: "gossip", Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: at, StreamBind: "127.0.0.1:0", Join: s.join, Share: "mesh",
		},
	}
	if s.options != nil {
		s.options(&o)
	}
	r, err := server.Open(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.join, s.replicas = append(s.join, at), append(s.replicas, r)
}

// ask sends an engine a unique prompt.
func (s *session) ask(ctx context.Context, i, tokens int) {
	s.prompts++
	prompt := strings.Repeat(fmt.Sprintf("word%d of the prompt ", s.prompts), 20)
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d}`, vocab.Name, prompt, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.fleet.Engines()[i].Addr()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			s.t.Error(err)
		}
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}

var (
	aNumber = regexp.MustCompile(`\b(?:\d+m)?\d[\d.]*( (?:ms|MB|B/s|s)\b|ms|s\b|%)`)
	aReads  = regexp.MustCompile(`(B/s  )\d+(  \d+  \d+  )\d+\n`)
	aKnown  = regexp.MustCompile(`(# blocks, |# ms  )[1-9]\d*( entries|  )`)
	aPort   = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	aBlank  = regexp.MustCompile(`  +`)
	aCount  = regexp.MustCompile(`(rendered|index:|hash) \w+`)
	aTime   = regexp.MustCompile(`read \d{4}-\d\d-\d\d [\d:]+`)
	aReplay = regexp.MustCompile(`(?m)^engine-\d:8000 \(catching-up\): replay from .* failed: .*\n`) // is retried in the meantime
	aPlace  = regexp.MustCompile(`[^ (]*endpoints\.yaml`)
)

// text is the output of status --cluster without random values.
func (s *session) text(at int) string {
	var b strings.Builder
	st := s.replicas[at].Status()
	writeStatus(&b, &st, true, false)
	out := b.String()
	for i, e := range s.fleet.Engines() {
		out = strings.ReplaceAll(out, e.Addr(), fmt.Sprintf("engine-%d:8000", i))
	}
	out = aPort.ReplaceAllString(out, "ADDRESS")
	out = aPlace.ReplaceAllString(out, "endpoints.yaml")
	out = aReplay.ReplaceAllString(out, "")
	out = aTime.ReplaceAllString(out, "read TIME")
	out = aCount.ReplaceAllString(out, "$1 #")
	out = aNumber.ReplaceAllString(out, "#$1")
	out = strings.ReplaceAll(aBlank.ReplaceAllString(out, "  "), "\n\n", "\n")
	return sorted(aReads.ReplaceAllString(out, "$1#$2#\n"))
}

// sorted sorts the rows of engines, whose ports are random.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	isRow := func(l string) bool { return strings.HasPrefix(l, "engine-") }
	if from := slices.IndexFunc(lines, isRow); from >= 0 {
		to := from
		for to < len(lines) && isRow(lines[to]) && !strings.Contains(lines[to], "): ") {
			to++
		}
		slices.Sort(lines[from:to])
	}
	return strings.Join(lines, "")
}
