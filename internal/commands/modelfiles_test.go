package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
)

// bare is a replica that serve starts with a list of engines and no folder of a model.
type bare struct {
	t     *testing.T
	admin string
	list  string // endpoints file
}

// serveBare starts engines with the options and a replica with the flags.
func serveBare(t *testing.T, o sim.Options, env map[string]string, flags ...string) *bare {
	t.Helper()
	for _, name := range []string{"HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "XDG_CACHE_HOME"} {
		t.Setenv(name, env[name])
	}
	t.Setenv("HF_HOME", t.TempDir())
	o.Speed, o.Events, o.Sources = 100, &sim.EventOptions{}, "ranks"
	engines, err := fleet.Open(fleet.Options{Engines: 2, Engine: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	var list strings.Builder
	list.WriteString("endpoints:\n")
	for i, e := range engines.Endpoints() {
		fmt.Fprintf(&list, "- {name: e%d, address: %s, port: \"%v\"}\n", i, e.Address, e.Port)
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return replicaOf(t, file, flags...)
}

// replicaOf starts a replica with a list of engines.
func replicaOf(t *testing.T, file string, flags ...string) *bare {
	t.Helper()
	b := &bare{t: t, admin: parts.FreeAddress(t), list: file}
	ctx, stop := context.WithCancel(t.Context())
	cmd := newServe(standard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--endpoints", file, "--listen", "127.0.0.1:0", "--health", "-", "--admin", b.admin, "--log-level", "error", "--linger", "1ms", "--model-cache", t.TempDir()}, flags...))
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

// get reads a page of the admin listener.
func (b *bare) get(path string) string {
	resp, err := http.Get("http://" + b.admin + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// becomes waits until the replica is ready, its only model's files have a state, and all endpoints
// have a state of knowledge whose reason contains a text. The process is old, so that the replica
// does not wait for models before it is ready.
func (b *bare) becomes(files, state, reason string) (st server.Status) {
	b.t.Helper()
	testkit.Eventually(b.t, func() string {
		page := b.get("/status")
		st = server.Status{}
		if err := json.Unmarshal([]byte(page), &st); err != nil || st.State != "ready" || len(st.Endpoints) != 2 {
			return "not ready: " + page
		}
		if len(st.ModelFiles) != 1 || string(st.ModelFiles[0].State) != files {
			return fmt.Sprintf("model files %+v, want %s", st.ModelFiles, files)
		}
		if files == "ready" && (len(st.Models) != 1 || st.Models[0].State != "ready") {
			return fmt.Sprintf("models %+v, want one ready", st.Models)
		}
		for _, ep := range st.Endpoints {
			if ep.Knowledge != state || !strings.Contains(ep.Reason, reason) {
				return fmt.Sprintf("%s: %s (%s), want %s (…%s…)", ep.Address, ep.Knowledge, ep.Reason, state, reason)
			}
		}
		return ""
	})
	return st
}

// matches checks that a prompt for a model is matched as text, as each configured model's is.
func (b *bare) matches(model string) {
	b.t.Helper()
	testkit.Eventually(b.t, func() string {
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"once upon a time"}]}`, model)
		resp, err := http.Post("http://"+b.admin+"/debug/explain?path=/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		var out struct {
			Prompt struct {
				Space string `json:"space"`
			} `json:"prompt"`
		}
		if json.Unmarshal(text, &out) != nil || out.Prompt.Space != "text" {
			return "not matched as text: " + string(text)
		}
		return ""
	})
}

// modelFolder returns the files of the engines' model.
func modelFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := vocab.New().WriteModel(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestExactByDefault: a replica with only a list of engines downloads from the hub the files that
// exact matching requires, and reports origin and checksums.
func TestExactByDefault(t *testing.T) {
	h := hub.Start(t)
	h.Add(t, "org/model", modelFolder(t))
	b := serveBare(t, sim.Options{Model: "served", Root: "org/model", Aliases: []string{"alias"}, Adapters: []string{"sql"}}, map[string]string{"HF_ENDPOINT": h.URL})
	st := b.becomes("ready", "exact", "")
	if st.ModelFiles[0].Model != "org/model" || st.ModelFiles[0].Origin != "hub" || st.ModelFiles[0].Revision != hub.Commit || len(st.ModelFiles[0].Files) < 2 {
		t.Errorf("model files %+v, want those of org/model from the hub", st.ModelFiles)
	}
	if st.Models[0].Name != "org/model" {
		t.Errorf("models %+v, want org/model ready", st.Models)
	}
	for _, name := range []string{"served", "alias", "sql"} { // the adapter has the same prompts as its base model
		b.matches(name)
	}
	if page := b.get("/metrics"); !strings.Contains(page, `grapevine_model_files{model="org/model",state="ready"} 1`) {
		t.Error("metrics do not report the model files as ready")
	}
}

// TestGroupWithFoundModels: replicas that find a model's files by themselves share the index: none is
// misconfigured, and each reads a part of the engines.
func TestGroupWithFoundModels(t *testing.T) {
	h := hub.Start(t)
	h.Add(t, "org/model", modelFolder(t))
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), 0o600); err != nil {
		t.Fatal(err)
	}
	gossip := parts.FreeAddress(t)
	group := []string{"--cluster=gossip", "--share=partitioned", "--cluster-key-file=" + key, "--cluster-stream-bind=127.0.0.1:0"}
	one := serveBare(t, sim.Options{Model: "served", Root: "org/model"}, map[string]string{"HF_ENDPOINT": h.URL}, append(group, "--name=one", "--cluster-bind="+gossip)...)
	two := replicaOf(t, one.list, append(group, "--name=two", "--cluster-bind=127.0.0.1:0", "--cluster-join="+gossip)...)
	for _, b := range []*bare{one, two} {
		testkit.Eventually(t, func() string {
			if st := b.becomes("ready", "exact", ""); st.Cluster.State != "joined" || len(st.Members) != 2 {
				return st.Name + ": " + st.Cluster.State + ": " + st.Cluster.Line
			}
			return ""
		})
		b.matches("served")
	}
}

// TestModelsWithoutFiles: where a model stays approximate, status, readiness and metrics report the
// state and the remedy, and the replica serves.
func TestModelsWithoutFiles(t *testing.T) {
	h := hub.Start(t)
	h.Add(t, "org/gated", modelFolder(t)).Gated = true
	for _, c := range []struct {
		root, state, remedy string
		env                 map[string]string
		flags               []string
	}{
		{root: "org/gated", state: "gated", remedy: "set HF_TOKEN"},
		{root: "org/none", state: "not_found", remedy: "--model NAME=FOLDER"},
		{root: "../../etc", state: "refused", remedy: "--model NAME=FOLDER"},
		{root: "https://evil.example/org/model", state: "refused", remedy: "--model NAME=FOLDER"},
		{root: "/nonexistent/model", state: "not_found", remedy: "same path"},
		{root: "org/gated", state: "offline", remedy: "mount a Hugging Face cache", env: map[string]string{"HF_HUB_OFFLINE": "1"}},
		{root: "org/gated", state: "offline", remedy: "mount a Hugging Face cache", flags: []string{"--model-source=cache"}},
	} {
		t.Run(c.state+" "+strings.ReplaceAll(c.root, "/", "_"), func(t *testing.T) {
			env := map[string]string{"HF_ENDPOINT": h.URL}
			for name, v := range c.env {
				env[name] = v
			}
			b := serveBare(t, sim.Options{Model: "served", Root: c.root}, env, c.flags...)
			b.becomes(c.state, "approximate", c.remedy)
			if page := b.get("/readyz?verbose"); !strings.Contains(page, "[+] models") || !strings.Contains(page, c.remedy) {
				t.Errorf("readyz:\n%s\nwant models with the remedy %q", page, c.remedy)
			}
			if page, want := b.get("/metrics"), fmt.Sprintf(`grapevine_model_files{model=%q,state=%q} 1`, c.root, c.state); !strings.Contains(page, want) {
				t.Errorf("metrics lack %s", want)
			}
		})
	}
}

// TestGatedModelWithToken: with the token of an account that has access, a gated model is exact. The
// token is not sent to the content host.
func TestGatedModelWithToken(t *testing.T) {
	h := hub.Start(t)
	h.Add(t, "org/gated", modelFolder(t)).Gated = true
	serveBare(t, sim.Options{Model: "org/gated"}, map[string]string{"HF_ENDPOINT": h.URL, "HF_TOKEN": h.Token}).becomes("ready", "exact", "")
	if leaked := h.Leaked(); len(leaked) > 0 {
		t.Errorf("content host received %q, want no token", leaked)
	}
}

// TestAirGapped: a mounted Hugging Face cache, or the engine's folder at the same path, is enough.
func TestAirGapped(t *testing.T) {
	cache := t.TempDir()
	snapshot := filepath.Join(cache, "models--org--model", "snapshots", hub.Commit)
	if err := os.CopyFS(snapshot, os.DirFS(modelFolder(t))); err != nil {
		t.Fatal(err)
	}
	refs := filepath.Join(cache, "models--org--model", "refs")
	if err := os.MkdirAll(refs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(refs, "main"), []byte(hub.Commit), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"org/model", modelFolder(t)} {
		env := map[string]string{"HF_HUB_CACHE": cache, "HF_HUB_OFFLINE": "1"}
		serveBare(t, sim.Options{Model: "served", Root: root}, env).becomes("ready", "exact", "")
	}
}

// TestModelFlags: impossible values are usage errors that name the flag.
func TestModelFlags(t *testing.T) {
	for want, f := range map[string]modelFileFlags{
		`--model-source "on": want auto, cache, off`:          {source: "on"},
		`--model-revision "a=b": want ORG/NAME=REVISION`:      {source: "auto", revisions: []string{"a=b"}},
		`--model-revision "org/m=..": want ORG/NAME=REVISION`: {source: "auto", revisions: []string{"org/m=.."}},
	} {
		if _, err := f.options(); err == nil || err.Error() != want {
			t.Errorf("options() = %v, want %s", err, want)
		}
	}
}
