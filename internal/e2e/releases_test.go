//go:build mixed

package e2e

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// program is a grapevine binary of some version, as reported in its status.
type program struct{ version, file string }

// build builds the sources of a folder.
func build(t *testing.T, dir, version, file string) program {
	t.Helper()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-X main.version="+version, "-o", file, "./cmd/grapevine")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building version %s: %v\n%s", version, err, out)
	}
	return program{version, file}
}

// git runs git in this repository.
func git(arg ...string) ([]byte, error) {
	cmd := exec.Command("git", arg...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(arg, " "), err, complaint.Bytes())
	}
	return out, err
}

// earlier returns the program of the commit in testdata/release.txt. It is built once and kept in
// the cache folder.
func earlier(t *testing.T) program {
	t.Helper()
	text, err := os.ReadFile("testdata/release.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	commit := lines[len(lines)-1]
	if _, err := git("merge-base", "--is-ancestor", commit, "HEAD"); err != nil {
		t.Fatalf("commit %s, whose program this test mixes with the present one, is not in the history of this clone: it takes the whole history (git fetch --unshallow). %v", commit, err)
	}
	file := filepath.Join(parts.Cache(), "releases", commit, "grapevine")
	if _, err := os.Stat(file); err == nil {
		return program{commit[:7], file}
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "sources.tar")
	top, err := git("rev-parse", "--show-toplevel")
	if err == nil {
		_, err = git("-C", strings.TrimSpace(string(top)), "archive", "--output", archive, commit)
	}
	if err == nil {
		err = exec.Command("tar", "-x", "-f", archive, "-C", dir).Run()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err != nil {
		t.Fatalf("the sources of commit %s: %v", commit, err)
	}
	part := fmt.Sprintf("%s.%d", file, os.Getpid())
	defer func() { _ = os.Remove(part) }() // does not exist after success
	p := build(t, dir, commit[:7], part)
	if err := os.Rename(part, file); err != nil {
		t.Fatal(err)
	}
	return program{p.version, file}
}

// blend is a rig whose replicas run two versions.
type blend struct {
	*rig
	now, then program
	args      [][]string // by replica
	admin     []string
	runs      []program // version of each replica
}

// openBlend opens engines, three replicas of the earlier version and an Envoy.
func openBlend(t *testing.T, secret bool) *blend {
	t.Helper()
	b := &blend{rig: begin(t), then: earlier(t)}
	b.now = build(t, "../..", "present", filepath.Join(b.dir, "grapevine"))
	b.openFleet(rigOptions{engines: 6, engine: slow()})
	flags := []string{
		"serve", "--endpoints", b.list, "--model", vocab.Name + "=" + b.model, "--health", "-", "--log-level", "warn",
		"--cluster", "gossip", "--share", "partitioned", "--cluster-key-file", b.secretFile("group.key"),
	}
	if secret {
		flags = append(flags, "--secret-file", b.secretFile("secret"))
	}
	join := []string{parts.FreeAddress(t), parts.FreeAddress(t), parts.FreeAddress(t)}
	for i, addr := range join {
		b.extproc, b.admin = append(b.extproc, parts.FreeAddress(t)), append(b.admin, parts.FreeAddress(t))
		b.args = append(b.args, append(slices.Clone(flags), "--name", fmt.Sprintf("replica-%d", i+1), "--listen", b.extproc[i], "--admin", b.admin[i],
			"--cluster-bind", addr, "--cluster-stream-bind", parts.FreeAddress(t), "--cluster-join", strings.Join(join, ",")))
		b.childs, b.runs = append(b.childs, nil), append(b.runs, program{})
		b.start(i, b.then)
	}
	b.openEnvoy(rigOptions{})
	t.Cleanup(b.close)
	const stat = "cluster.pickers.membership_healthy"
	testkit.Await(t, "every replica is healthy to Envoy", func() bool { return b.envoy.Stats(t, stat)[stat] == len(b.childs) })
	return b
}

func (b *blend) secretFile(name string) string {
	file := filepath.Join(b.dir, name)
	text := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// start starts a replica at its fixed addresses.
func (b *blend) start(i int, p program) {
	b.t.Helper()
	c := &child{cmd: exec.Command(p.file, b.args[i]...)}
	log, err := os.OpenFile(filepath.Join(b.dir, fmt.Sprintf("replica-%d.log", i+1)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.childs[i], b.runs[i] = c, p
}

// roll replaces a replica by another version, and waits until Envoy asks it.
func (b *blend) roll(i int, p program) {
	b.t.Helper()
	begun := time.Now()
	if err := b.childs[i].terminate(); err != nil {
		b.t.Errorf("replica-%d, version %s, ended with %v", i+1, b.runs[i].version, err)
	}
	b.t.Logf("replica-%d took %.1f s to leave", i+1, time.Since(begun).Seconds())
	b.start(i, p)
	b.ready()
	b.until(func(j int, st *server.Status) string {
		if j == i && st.Decisions == 0 {
			return "is asked nothing"
		}
		return ""
	})
}

// all returns the status of every replica.
func (b *blend) all() ([]server.Status, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	list := make([]server.Status, len(b.admin))
	for i, addr := range b.admin {
		resp, err := client.Get("http://" + addr + "/status")
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(&list[i])
			resp.Body.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("replica-%d: %w", i+1, err)
		}
	}
	return list, nil
}

// until waits until amiss returns "" for every replica.
func (b *blend) until(amiss func(i int, st *server.Status) string) {
	b.t.Helper()
	testkit.Eventually(b.t, func() string {
		list, err := b.all()
		if err != nil {
			return err.Error()
		}
		for i := range list {
			if why := amiss(i, &list[i]); why != "" {
				return fmt.Sprintf("replica-%d, version %s, says %q, %s: %s", i+1, b.runs[i].version, list[i].State, list[i].Cluster.Line, why)
			}
		}
		return ""
	})
}

// ready waits until every replica serves and lists exactly the others with their versions.
func (b *blend) ready() {
	b.t.Helper()
	b.until(func(i int, st *server.Status) string {
		got, want := map[string]string{}, map[string]string{}
		for j, p := range b.runs {
			want[fmt.Sprintf("replica-%d", j+1)] = fmt.Sprint(p.version, " ", cmp.Or(map[bool]string{i == j: "self"}[true], "up"))
		}
		for _, m := range st.Members {
			got[m.Name] = m.Version + " " + m.State
		}
		if st.Version != b.runs[i].version || st.State != "ready" && st.State != "degraded" || fmt.Sprint(got) != fmt.Sprint(want) || len(st.Members) != len(want) {
			return fmt.Sprintf("%s, members %v, want %v", st.Version, got, want)
		}
		return ""
	})
}

// agree waits until every replica has joined the others and its state of every engine is exact. It
// asserts that each has the blocks of the engines.
func (b *blend) agree() {
	b.t.Helper()
	b.until(func(_ int, st *server.Status) string {
		if st.State != "ready" || st.Cluster.State != "joined" || inexact(st) > 0 || len(st.Endpoints) != len(b.fleet.Engines()) {
			return fmt.Sprint("not one group that knows everything exactly: ", notExact(st))
		}
		return b.unlike(st)
	})
}

// apart waits until every replica reports that it shares no index with the others. This release
// names the other release; earlier ones report misconfigured. It asserts that each replica has the
// blocks of the engines.
func (b *blend) apart() {
	b.t.Helper()
	b.until(func(_ int, st *server.Status) string {
		says := st.Cluster.State == "misconfigured" || st.Cluster.State == "degraded" && strings.Contains(st.Cluster.Line, "runs release")
		if !says || inexact(st) > 0 {
			return "is not said to be apart, or does not know everything exactly: " + notExact(st)
		}
		return b.unlike(st)
	})
}

// unlike returns where a replica's blocks differ from the blocks of an idle engine.
func (b *blend) unlike(st *server.Status) string {
	for _, e := range b.fleet.Engines() {
		i := slices.IndexFunc(st.Endpoints, func(ep server.EndpointStatus) bool { return ep.Address == e.Addr() })
		if i < 0 {
			return e.Name() + " is not known"
		}
		if held, known := e.Stats()[0].Engine.CachedNames, st.Endpoints[i].Blocks; known != held {
			return fmt.Sprintf("%s holds %d blocks, %d of them are known", e.Name(), held, known)
		}
	}
	return ""
}

// counted blocks requests at engines and asserts that each replica counts the requests of all.
func (b *blend) counted() {
	b.t.Helper()
	const waiting = 24
	total := func(want int64) {
		b.t.Helper()
		b.until(func(_ int, st *server.Status) string {
			n := int64(0)
			for _, ep := range st.Endpoints {
				n += ep.InFlight
			}
			if n != want {
				return fmt.Sprintf("%d requests in flight, there are %d", n, want)
			}
			return ""
		})
	}
	total(0)
	b.hang(faults.HangEngine)
	var answers sync.WaitGroup
	before, err := b.all()
	if err != nil {
		b.t.Fatal(err)
	}
	for range waiting {
		answers.Go(func() {
			if got := b.post(); got != http.StatusOK {
				b.t.Errorf("a request was answered with %d", got)
			}
		})
	}
	total(waiting)
	after, err := b.all()
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range after {
		if after[i].Decisions == before[i].Decisions {
			b.t.Errorf("replica-%d placed none of %d requests", i+1, waiting)
		}
	}
	b.hang(faults.HangNone)
	answers.Wait()
	total(0)
}

// post sends a small request and returns the status code; 0 stands for no answer.
func (b *blend) post() int {
	body := fmt.Sprintf(`{"model":%q,"prompt":"once upon a time","max_tokens":2}`, vocab.Name)
	resp, err := b.client.HTTP.Post(b.client.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// passed returns the number of requests that Envoy routed by itself.
func (b *blend) passed() int {
	return b.envoy.Stats(b.t, "failure_mode_allowed")["http.inference.ext_proc.picker.failure_mode_allowed"]
}

// stage rolls a replica under load and calls holds afterwards, without load.
func (b *blend) stage(i int, p program, holds func()) {
	b.t.Helper()
	begun := time.Now()
	tally := b.steady(func(more func(uint64)) {
		more(50)
		b.roll(i, p)
		more(50)
	})
	holds()
	b.counted()
	var versions []string
	for _, p := range b.runs {
		versions = append(versions, p.version)
	}
	b.t.Logf("replicas of versions %s: %d requests, none failed, hits %.1f%%, in %.0f s", strings.Join(versions, ", "), tally.Requests, 100*tally.HitRatio(), time.Since(begun).Seconds())
}

// TestReleases rolls a group from an earlier version to this one and back, replica by replica. Both
// versions form one group.
func TestReleases(t *testing.T) {
	b := openBlend(t, true)
	b.ready()
	b.agree()
	b.counted()
	for _, p := range []program{b.now, b.then} {
		for i := range b.childs {
			b.stage(i, p, b.agree)
		}
	}
	if n := b.passed(); n > 0 {
		t.Errorf("Envoy placed %d requests itself", n)
	}
}

// TestReleasesApart checks a group without a secret. The two versions have different block keys
// there: they report it, share their load, and share no index.
func TestReleasesApart(t *testing.T) {
	b := openBlend(t, false)
	b.ready()
	b.agree()
	b.stage(0, b.now, b.apart)
	b.stage(0, b.then, b.agree)
}
