package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
)

// modelRig is a hub, engines that serve models of the hub, and the program. Replicas have no folder of
// a model.
type modelRig struct {
	t        *testing.T
	hub      *hub.Hub
	program  string
	list     string   // endpoints file
	model    string   // folder with the files of each model
	bus      []string // flags of the group
	join     string   // gossip address of the first replica
	replicas []*modelReplica
}

// newModelRig starts engines of each model.
func newModelRig(t *testing.T, program string, nats bool, models ...string) *modelRig {
	t.Helper()
	r := &modelRig{t: t, hub: hub.Start(t), program: program, model: t.TempDir()}
	if err := vocab.New().WriteModel(r.model); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	list.WriteString("endpoints:\n")
	for i, model := range models {
		r.hub.Add(t, model, r.model)
		engines, err := fleet.Open(fleet.Options{Engines: 1, Engine: sim.Options{Speed: 100, Events: &sim.EventOptions{}, Sources: "ranks", Model: model, Root: model}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = engines.Close() })
		e := engines.Endpoints()[0]
		fmt.Fprintf(&list, "- {name: e%d, address: %s, port: \"%v\"}\n", i, e.Address, e.Port)
	}
	r.list = r.write("endpoints.yaml", list.String())
	if nats {
		s, err := embedded.Start(embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		r.bus = []string{"--cluster=nats", "--nats=" + s.URL()}
		return r
	}
	r.bus = []string{"--cluster=gossip", "--cluster-stream-bind=127.0.0.1:0", "--cluster-key-file=" + r.write("key", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")}
	return r
}

func (r *modelRig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// modelReplica is a running program.
type modelReplica struct {
	t           *testing.T
	name, admin string
	cmd         *exec.Cmd
}

// start starts the program. The name of each replica is its token at the hub, unless env has another.
func (r *modelRig) start(env map[string]string, flags ...string) *modelReplica {
	r.t.Helper()
	p := &modelReplica{t: r.t, name: fmt.Sprint("replica-", len(r.replicas)), admin: parts.FreeAddress(r.t)}
	args := slices.Concat([]string{
		"serve", "--name", p.name, "--endpoints", r.list, "--listen", "127.0.0.1:0", "--health", "-", "--admin", p.admin, "--linger", "1ms", "--log-level", "warn",
		"--model-cache", r.t.TempDir(),
	}, r.bus, flags)
	if slices.Contains(r.bus, "--cluster=gossip") {
		at := parts.FreeAddress(r.t)
		args = append(args, "--cluster-bind="+at)
		if r.join != "" {
			args = append(args, "--cluster-join="+r.join)
		} else {
			r.join = at
		}
	}
	p.cmd = exec.Command(r.program, args...)
	all := map[string]string{"HOME": r.t.TempDir(), "HF_ENDPOINT": r.hub.URL, "HF_TOKEN": p.name}
	maps.Copy(all, env)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range all {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.kill)
	r.replicas = append(r.replicas, p)
	return p
}

func (p *modelReplica) kill() {
	_ = p.cmd.Process.Kill() // it may already have ended
	_ = p.cmd.Wait()
}

func (p *modelReplica) get(path string) string {
	resp, err := http.Get("http://" + p.admin + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// files waits until the replica is ready and has the files of n models, and every endpoint is exact.
func (p *modelReplica) files(n int) (list []modelfiles.Status) {
	p.t.Helper()
	testkit.Eventually(p.t, func() string {
		var st server.Status
		page := p.get("/status")
		if err := json.Unmarshal([]byte(page), &st); err != nil || st.State != "ready" || len(st.ModelFiles) != n {
			return p.name + " is not ready: " + page
		}
		for _, m := range st.ModelFiles {
			if m.State != modelfiles.StateReady {
				return fmt.Sprintf("%s: %+v", p.name, m)
			}
		}
		for _, ep := range st.Endpoints {
			if ep.Knowledge != "exact" {
				return fmt.Sprintf("%s: %s is %s (%s)", p.name, ep.Address, ep.Knowledge, ep.Reason)
			}
		}
		list = st.ModelFiles
		return ""
	})
	return list
}

// has checks that a page of metrics has a line.
func (p *modelReplica) has(line string) {
	p.t.Helper()
	if !strings.Contains(p.get("/metrics"), line+"\n") {
		p.t.Errorf("%s: metrics lack %s", p.name, line)
	}
}

// from checks the origin of the only model's files, and that they equal those of the hub.
func (p *modelReplica) from(want string) {
	p.t.Helper()
	m := p.files(1)[0]
	if got := strings.TrimSpace(m.Origin + " " + m.Peer); got != want {
		p.t.Errorf("%s: files from %s, want %s", p.name, got, want)
	}
}

// once checks that the hub received each request once.
func (r *modelRig) once() {
	r.t.Helper()
	counts := map[string]int{}
	for _, path := range r.hub.Requests() {
		counts[path]++
	}
	for path, n := range counts {
		if n != 1 {
			r.t.Errorf("the hub received %d requests for %s, want 1", n, path)
		}
	}
	if len(counts) == 0 {
		r.t.Error("the hub received no request, want one for each file")
	}
}

// TestModelFilesOfGroup: one download serves a group of replicas.
func TestModelFilesOfGroup(t *testing.T) {
	program := filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	for name, nats := range map[string]bool{"gossip": false, "nats": true} {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("one download, %d replicas, %s", n, name), func(t *testing.T) { oneDownload(t, program, nats, n) })
		}
	}
	for name, test := range map[string]func(*testing.T, *modelRig){
		"downloader dies": downloaderDies, "without hub": filesWithoutHub, "damaged": damagedFiles, "revision": revisionOfPeer, "gated": gatedFiles,
	} {
		t.Run(name, func(t *testing.T) { test(t, newModelRig(t, program, false, "org/one")) })
	}
}

// oneDownload: replicas that start together download each file of two models once, whatever
// connects them. A replica that joins later downloads nothing.
func oneDownload(t *testing.T, program string, nats bool, n int) {
	models := []string{"org/one", "org/two"}
	r := newModelRig(t, program, nats, models...)
	for range n {
		r.start(nil)
	}
	hubs := map[string]int{}
	var sums []string
	check := func(p *modelReplica) {
		for _, m := range p.files(len(models)) {
			sums = append(sums, fmt.Sprint(m.Files))
			switch {
			case m.Origin == modelfiles.OriginHub:
				hubs[m.Model]++
			case m.Origin != modelfiles.OriginPeer || !strings.HasPrefix(m.Peer, "replica-") || m.Peer == p.name:
				t.Errorf("%s: %s from %s %q, want the hub or a peer", p.name, m.Model, m.Origin, m.Peer)
			}
		}
	}
	for _, p := range r.replicas {
		check(p)
	}
	check(r.start(nil))
	r.once()
	for _, model := range models {
		if hubs[model] != 1 {
			t.Errorf("%d replicas downloaded %s, want 1", hubs[model], model)
		}
	}
	if all := slices.Compact(slices.Sorted(slices.Values(sums))); len(all) != 1 {
		t.Errorf("%d different sets of files, want the same everywhere", len(all))
	}
}

// downloaderDies: the replica that downloads is killed in the middle of a file. Another one
// downloads the files, and the third takes them from it.
func downloaderDies(t *testing.T, r *modelRig) {
	inFile, dead := make(chan string, 8), make(chan struct{})
	r.hub.Before = func(q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/tokenizer.json") {
			inFile <- strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
			select {
			case <-dead:
			case <-q.Context().Done():
			}
		}
	}
	for range 3 {
		r.start(nil)
	}
	first := <-inFile
	var left []*modelReplica
	for _, p := range r.replicas {
		if p.name == first {
			p.kill()
		} else {
			left = append(left, p)
		}
	}
	close(dead)
	origins := []string{}
	for _, p := range left {
		m := p.files(1)[0]
		origins = append(origins, m.Origin)
		if m.Origin == modelfiles.OriginPeer && m.Peer == first {
			t.Errorf("%s has the files of the killed replica, want those of the other one", p.name)
		}
	}
	if slices.Sort(origins); !slices.Equal(origins, []string{modelfiles.OriginHub, modelfiles.OriginPeer}) {
		t.Errorf("files from %q, want one download and one transfer", origins)
	}
	if second := <-inFile; second == first || len(inFile) > 0 {
		t.Errorf("%s downloaded after %s, and %d more; want one other replica", second, first, len(inFile))
	}
}

// mounted returns a Hugging Face cache with the files of org/one at a commit, and the path of its
// vocabulary.
func (r *modelRig) mounted(commit string) (cache, vocabulary string) {
	r.t.Helper()
	cache = r.t.TempDir()
	base := filepath.Join(cache, "models--org--one")
	if err := os.CopyFS(filepath.Join(base, "snapshots", commit), os.DirFS(r.model)); err != nil {
		r.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(base, "refs"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "refs", "main"), []byte(commit), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return cache, filepath.Join(base, "snapshots", commit, "tokenizer.json")
}

// filesWithoutHub: one replica has the files in a mounted cache, and the hub does not answer, or
// downloads are off. The others take them from the first, and the last one from any.
func filesWithoutHub(t *testing.T, r *modelRig) {
	cache, _ := r.mounted(hub.Commit)
	down := map[string]string{"HF_ENDPOINT": "http://" + parts.FreeAddress(t)}
	late := r.start(map[string]string{"HF_HUB_OFFLINE": "1"})
	r.start(map[string]string{"HF_HUB_CACHE": cache, "HF_ENDPOINT": down["HF_ENDPOINT"]}).from("cache")
	late.from("peer replica-1")
	if m := r.start(down, "--model-source=cache").files(1)[0]; m.Origin != modelfiles.OriginPeer {
		t.Errorf("files from %s, want a peer", m.Origin)
	}
	r.start(down).files(1)
	if n := len(r.hub.Requests()); n > 0 {
		t.Errorf("the hub received %d requests, want none", n)
	}
}

// damagedFiles: a replica whose files have changed on its disk sends damaged content. The
// receiver counts one error, and downloads.
func damagedFiles(t *testing.T, r *modelRig) {
	cache, vocabulary := r.mounted(hub.Commit)
	r.start(map[string]string{"HF_HUB_CACHE": cache}).from("cache")
	b, err := os.ReadFile(vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(vocabulary, b, 0o600); err != nil {
		t.Fatal(err)
	}
	p := r.start(nil)
	p.from("hub")
	p.has(`grapevine_model_peer_transfers_total{result="damaged"} 1`)
	p.has(`grapevine_model_downloads_total{result="ready"} 1`)
	r.once()
}

// revisionOfPeer: files of another commit are not taken, and files of the pinned commit are, even
// if the peer uses a branch.
func revisionOfPeer(t *testing.T, r *modelRig) {
	other := strings.Repeat("a", 40)
	cache, _ := r.mounted(other)
	r.start(map[string]string{"HF_HUB_CACHE": cache}).from("cache")
	r.start(nil, "--model-revision=org/one="+hub.Commit).from("hub")
	p := r.start(nil, "--model-revision=org/one="+other)
	p.from("peer replica-0")
	p.has(`grapevine_model_peer_transfers_total{result="ready"} 1`)
	r.once()
}

// gatedFiles: one replica has a token with access. The others, without a token, receive the files from
// peers.
func gatedFiles(t *testing.T, r *modelRig) {
	r.hub.Repos["org/one"].Gated = true
	for range 2 {
		r.start(map[string]string{"HF_TOKEN": ""})
	}
	r.start(map[string]string{"HF_TOKEN": r.hub.Token}).from("hub")
	for _, p := range r.replicas[:2] { // the second may take them from the first
		if m := p.files(1)[0]; m.Origin != modelfiles.OriginPeer {
			t.Errorf("%s: files from %s, want a peer", p.name, m.Origin)
		}
	}
}
