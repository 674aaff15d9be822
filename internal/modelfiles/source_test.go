package modelfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
)

const tokenizer = `{"model":{"type":"BPE"}}`

// repoFiles is a repository with files that are read and others.
func repoFiles() *hub.Repo {
	return &hub.Repo{Commit: hub.Commit, Large: []string{"tokenizer.json"}, Files: map[string]string{
		"tokenizer.json": tokenizer, "tokenizer_config.json": "{}", "chat_template.jinja": "{{ messages }}", "config.json": "{}",
		"additional_chat_templates/tool_use.jinja": "{{ tools }}", "model-00001-of-00002.safetensors": "weights",
		"../../escape.json": "x", "additional_chat_templates/../x.jinja": "x", "README.md": "x", "modeling_evil.py": "x",
	}}
}

func open(t *testing.T, o Options) *Source {
	t.Helper()
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if o.Cache == "" {
		o.Cache = t.TempDir()
	}
	if o.Retry == 0 {
		o.Retry = time.Millisecond
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// await waits until the only model is in a state.
func await(t *testing.T, s *Source, want State) (st Status) {
	t.Helper()
	testkit.Eventually(t, func() string {
		all := s.Status()
		if len(all) != 1 || all[0].State != want {
			return "want " + string(want) + ", got " + describeAll(all)
		}
		st = all[0]
		return ""
	})
	return st
}

func describeAll(all []Status) string {
	var out []string
	for _, st := range all {
		out = append(out, st.Model+" "+string(st.State)+" "+st.Error)
	}
	return strings.Join(out, "; ")
}

// TestDownload: only the files that are read are downloaded, verified and stored in the layout of a
// Hugging Face cache. A second source finds them there without a request.
func TestDownload(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	h.Repos["org/m"].Gated = true
	changed := make(chan struct{}, 8)
	reg := prometheus.NewRegistry()
	cache := t.TempDir()
	s := open(t, Options{Endpoint: h.URL, Cache: cache, Token: func() string { return h.Token }, Registerer: reg, Changed: func() { changed <- struct{}{} }})
	s.Set([]Want{{Root: "org/m"}})
	<-changed
	st := await(t, s, StateReady)
	want := filepath.Join(cache, "models--org--m", "snapshots", hub.Commit)
	if st.Origin != OriginHub || st.Folder != want || st.Revision != hub.Commit || s.Folder("org/m") != want {
		t.Errorf("status %+v, want a download to %s", st, want)
	}
	var names []string
	for _, f := range st.Files {
		names = append(names, f.Name)
		sum := sha256.Sum256([]byte(tokenizer))
		if f.Name == "tokenizer.json" && (f.SHA256 != hex.EncodeToString(sum[:]) || f.Bytes != int64(len(tokenizer))) {
			t.Errorf("file %+v, want the checksum and size of the original", f)
		}
	}
	if want := []string{"chat_template.jinja", "config.json", "tokenizer.json", "tokenizer_config.json", "additional_chat_templates/tool_use.jinja"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	for _, path := range h.Requests() {
		if strings.Contains(path, "safetensors") || strings.Contains(path, "escape") || strings.Contains(path, "..") || strings.HasSuffix(path, ".py") {
			t.Errorf("requested %s, want only files that are read", path)
		}
	}
	if leaked := h.Leaked(); len(leaked) > 0 {
		t.Errorf("content host received %q, want no token", leaked)
	}
	if got := testutil.ToFloat64(s.metrics.downloads.WithLabelValues("ready")); got != 1 {
		t.Errorf("%v downloads counted, want 1", got)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*", stagedPrefix+"*"))
	if len(left) > 0 {
		t.Errorf("left %q, want no incomplete download", left)
	}

	n := len(h.Requests())
	again := open(t, Options{Endpoint: h.URL, Cache: cache})
	again.Set([]Want{{Root: "org/m"}})
	if st := await(t, again, StateReady); st.Origin != OriginCache || st.Folder != want || len(h.Requests()) != n {
		t.Errorf("second source: %+v and %d requests, want files of the cache and no request", st, len(h.Requests())-n)
	}
}

// TestFaultsOfTheHub: broken-off and busy downloads are repeated; files without their digest are
// never used.
func TestFaultsOfTheHub(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	h.Busy, h.Break = 2, 3
	s := open(t, Options{Endpoint: h.URL})
	s.Set([]Want{{Root: "org/m"}})
	await(t, s, StateReady)

	h.Lock()
	h.Corrupt = true
	h.Unlock()
	bad := open(t, Options{Endpoint: h.URL})
	bad.Set([]Want{{Root: "org/m"}})
	if st := await(t, bad, StateFailed); !strings.Contains(st.Error, "digest") || bad.Folder("org/m") != "" || st.Remedy == "" {
		t.Errorf("corrupt file: %+v, want a failure that names the digest, and no folder", st)
	}
	h.Lock()
	h.Corrupt = false
	h.Unlock()
	await(t, bad, StateReady)
}

// TestRetryAfter: the pause that a busy hub requests is kept.
func TestRetryAfter(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	h.Busy, h.RetryAft = 1, 300
	s := open(t, Options{Endpoint: h.URL})
	s.Set([]Want{{Root: "org/m"}})
	if st := await(t, s, StateFailed); st.NextS < 100 {
		t.Errorf("next attempt after %v s, want about 300", st.NextS)
	}
	s.Retry()
	await(t, s, StateReady)
}

// TestGated: a gated model becomes usable once a token is set.
func TestGated(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	h.Repos["org/m"].Gated = true
	token := filepath.Join(t.TempDir(), "token")
	o := FromEnv(func(name string) string {
		return map[string]string{"HF_ENDPOINT": h.URL, "HF_TOKEN_PATH": token, "HF_HUB_CACHE": t.TempDir(), "HOME": "/nonexistent"}[name]
	})
	o.Cache = t.TempDir()
	o.Retry = time.Hour
	s := open(t, o)
	s.Set([]Want{{Root: "org/m"}})
	if st := await(t, s, StateGated); !strings.Contains(st.Remedy, "HF_TOKEN") || s.Pending() {
		t.Errorf("status %+v, want a remedy that names HF_TOKEN, and not pending", st)
	}
	if err := os.WriteFile(token, []byte(h.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Retry()
	await(t, s, StateReady)
	if leaked := h.Leaked(); len(leaked) > 0 {
		t.Errorf("content host received %q, want no token", leaked)
	}
}

// TestNotFound: missing repositories and revisions are reported with the remedy.
func TestNotFound(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	h.Repos["org/empty"] = &hub.Repo{Commit: hub.Commit, Files: map[string]string{"README.md": "x"}}
	for _, c := range []struct {
		model string
		o     Options
	}{{"org/none", Options{}}, {"org/none", Options{Token: func() string { return h.Token }}}, {"org/empty", Options{}}, {"org/m", Options{Revisions: map[string]string{"org/m": "v9"}}}} {
		c.o.Endpoint = h.URL
		s := open(t, c.o)
		s.Set([]Want{{Root: c.model}})
		if st := await(t, s, StateNotFound); !strings.Contains(st.Remedy, "--model") {
			t.Errorf("%s: %+v, want a remedy that names --model", c.model, st)
		}
	}
	pinned := open(t, Options{Endpoint: h.URL, Revisions: map[string]string{"org/m": hub.Commit}})
	pinned.Set([]Want{{Root: "org/m"}})
	await(t, pinned, StateReady)
}

// TestUntrustedNames: names that are neither plain repositories nor clean folders cause no request
// and no access outside the cache.
func TestUntrustedNames(t *testing.T) {
	h := hub.Start(t)
	for _, root := range []string{
		"../../etc", "..", "org/..", "org/../m", "/etc/../etc", "https://evil.example/m", "//evil/m", "org/m/x", "org", "", "org/m?x=1", "org/m#x",
		"org/m%2f..", "org\\m", "or g/m", "org/m\n", "org/-m", "-org/m", "org/m.git", "org--x/m", "@evil.example/m", strings.Repeat("a", 95) + "/m", "órg/m",
	} {
		s := open(t, Options{Endpoint: h.URL, Cache: t.TempDir()})
		s.Set([]Want{{Root: root}})
		if st := await(t, s, StateRefused); st.Folder != "" || st.Remedy == "" {
			t.Errorf("%q: %+v, want it refused with a remedy", root, st)
		}
		s.Close()
	}
	if got := h.Requests(); len(got) > 0 {
		t.Errorf("the hub received %q, want no request", got)
	}
}

// TestCaches: a mounted cache is used in each of its forms, also offline.
func TestCaches(t *testing.T) {
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cache := t.TempDir()
	at := func(parts ...string) string {
		return filepath.Join(append([]string{cache, "models--org--m"}, parts...)...)
	}
	blob := at("blobs", "abc")
	write(blob, tokenizer)
	write(at("snapshots", "old", "tokenizer.json"), "{}")
	write(at("snapshots", "new", "config.json"), "{}")
	if err := os.Symlink(blob, at("snapshots", "new", "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	write(at("refs", "main"), "new\n")
	write(at("refs", "v1"), "old")
	write(at("refs", "evil"), "../../../../etc")
	for rev, want := range map[string]string{"main": "new", "v1": "old", "old": "old", "evil": "", "v2": ""} {
		if _, got := FindSnapshot(cache, "org/m", rev); got != want {
			t.Errorf("FindSnapshot(%s) = %q, want %q", rev, got, want)
		}
	}
	s := open(t, Options{Mode: ModeCache, Caches: []string{cache}})
	s.Set([]Want{{Root: "org/m"}})
	if st := await(t, s, StateReady); st.Origin != OriginCache || st.Revision != "new" || len(st.Files) != 2 {
		t.Errorf("status %+v, want two files of snapshot new", st)
	}
	none := open(t, Options{Offline: "HF_HUB_OFFLINE", Caches: []string{cache}})
	none.Set([]Want{{Root: "org/other"}})
	if st := await(t, none, StateOffline); !strings.Contains(st.Remedy, "HF_HUB_OFFLINE") || !strings.Contains(st.Remedy, "mount") {
		t.Errorf("status %+v, want a remedy that names HF_HUB_OFFLINE and a mounted cache", st)
	}
}

// TestFolders: a folder that the engine names is used if it exists here, and otherwise the served
// name.
func TestFolders(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokenizer), 0o600); err != nil {
		t.Fatal(err)
	}
	here := open(t, Options{Endpoint: h.URL})
	here.Set([]Want{{Root: dir, Names: []string{"org/m"}}})
	if st := await(t, here, StateReady); st.Origin != OriginFolder || st.Folder != dir || len(h.Requests()) > 0 {
		t.Errorf("status %+v, want the folder and no request", st)
	}
	named := open(t, Options{Endpoint: h.URL})
	named.Set([]Want{{Root: "/nonexistent/m", Names: []string{"m", "org/m"}}})
	if st := await(t, named, StateReady); st.Origin != OriginHub {
		t.Errorf("status %+v, want a download of the served name", st)
	}
	neither := open(t, Options{Endpoint: h.URL})
	neither.Set([]Want{{Root: "/nonexistent/m", Names: []string{"m"}}})
	if st := await(t, neither, StateNotFound); !strings.Contains(st.Remedy, "same path") {
		t.Errorf("status %+v, want a remedy that names the path", st)
	}
}

// TestLimits: the size of files and the number of models are limited.
func TestLimits(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	for _, o := range []Options{{MaxFile: 10}, {MaxModel: 30}} {
		o.Endpoint = h.URL
		s := open(t, o)
		s.Set([]Want{{Root: "org/m"}})
		if st := await(t, s, StateRefused); !strings.Contains(st.Error, "larger than") {
			t.Errorf("status %+v, want the size refused", st)
		}
	}
	cache := t.TempDir()
	first := open(t, Options{Endpoint: h.URL, Cache: cache, MaxModel: 1000, MaxCache: 1010})
	first.Set([]Want{{Root: "org/m"}})
	await(t, first, StateReady)
	h.Lock()
	h.Repos["org/n"] = repoFiles()
	h.Unlock()
	second := open(t, Options{Endpoint: h.URL, Cache: cache, MaxModel: 1000, MaxCache: 1010})
	second.Set([]Want{{Root: "org/n"}})
	if st := await(t, second, StateRefused); !strings.Contains(st.Error, "is full") {
		t.Errorf("status %+v, want the full cache reported", st)
	}
	h.Lock()
	delete(h.Repos, "org/n")
	h.Unlock()
	s := open(t, Options{Endpoint: h.URL, MaxModels: 1})
	s.Set([]Want{{Root: "org/m"}, {Root: "org/n"}})
	await(t, s, StateReady)
	s.Set([]Want{{Root: "org/n"}})
	s.Set([]Want{{Root: "org/n"}})
	await(t, s, StateNotFound)
	s.Set(nil)
	if got := s.Status(); len(got) > 0 {
		t.Errorf("Status() = %v, want no models", got)
	}
}

// TestRedirects: a redirect never downgrades to http or to another scheme, and does not end up in a
// loop.
func TestRedirects(t *testing.T) {
	h := hub.Start(t)
	h.Repos["org/m"] = repoFiles()
	for _, to := range []string{"file:///etc", "ftp://x", h.URL + "/org/m/resolve/" + hub.Commit + "/tokenizer.json#"} {
		h.Lock()
		h.Content = to
		h.Unlock()
		s := open(t, Options{Endpoint: h.URL})
		s.Set([]Want{{Root: "org/m"}})
		testkit.Await(t, "the download fails", func() bool { all := s.Status(); return all[0].Attempts > 0 })
		if s.Folder("org/m") != "" {
			t.Errorf("redirect to %s: a folder, want none", to)
		}
		s.Close()
	}
}

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
