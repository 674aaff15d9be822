//go:build proxies

package proxies

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kinds"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Addresses of the examples.
const (
	clients    = "127.0.0.1:8080"
	pickListen = "127.0.0.1:9006"
	pickEnds   = "127.0.0.1:9514"
)

var engines = []string{"127.0.0.1:18001", "127.0.0.1:18002"}

// proxy is a proxy with an example configuration, installed as its package of Debian installs it.
type proxy struct {
	name   string
	args   []string          // as its service or its image starts it, without daemonizing
	files  map[string]string // files of the package: paths in the machine -> paths in the package
	dirs   []string          // empty folders that the package creates
	body   bool              // the picker sees the body
	second bool              // if the first engine fails, a request is sent to a second one
	alone  bool              // the proxy chooses engines without a picker
	tells  bool              // the log shows that a client left in the middle of an answer
}

var proxies = []proxy{
	{
		name: "nginx", body: true, second: true, alone: true, tells: true,
		args: []string{"/usr/sbin/nginx", "-g", "daemon off;"},
		// /usr/share/nginx/modules is a link to /usr/lib/nginx/modules in package nginx-common.
		files: map[string]string{"/usr/sbin/nginx": "usr/sbin/nginx", "/usr/lib/nginx/modules": "usr/lib/nginx/modules", "/usr/share/nginx/modules": "usr/lib/nginx/modules"},
		dirs:  []string{"/var/lib/nginx", "/var/log/nginx", "/run"},
	},
	{
		name: "haproxy", body: true, second: true, alone: true, tells: true,
		args:  []string{"/usr/sbin/haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"},
		files: map[string]string{"/usr/sbin/haproxy": "usr/sbin/haproxy"},
	},
	{
		name: "caddy", args: []string{"/usr/bin/caddy", "run", "--config", "/etc/caddy/Caddyfile"},
		files: map[string]string{"/usr/bin/caddy": "usr/bin/caddy"},
	},
}

// rig is two engines, a scripted picker, and a proxy.
type rig struct {
	t       *testing.T
	p       *proxy
	addr    string // of the proxy
	engines []*httptest.Server
	addrs   []string // of the engines
	pick    *admin.Pick
	log     parts.Output
	next    chan struct{} // lets a paced answer continue
	left    chan struct{} // a client left during a paced answer
	client  http.Client

	mu       sync.Mutex
	order    []string // the chooser's answer
	refuse   bool
	requests []request.Request
	inFlight int
	outcomes []request.Outcome
}

func open(t *testing.T, p *proxy) *rig {
	t.Helper()
	r := &rig{t: t, p: p, addr: clients, next: make(chan struct{}), left: make(chan struct{}, 1)}
	for i, name := range []string{"first", "second"} {
		mux := http.NewServeMux()
		mux.Handle("/", kinds.Engine(name))
		mux.HandleFunc("/v1/paced", r.paced)
		l, err := net.Listen("tcp", engines[i])
		if err != nil {
			t.Fatal(err)
		}
		e := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
		e.Start()
		t.Cleanup(e.Close)
		r.engines, r.addrs = append(r.engines, e), append(r.addrs, e.Listener.Addr().String())
	}
	r.order = r.addrs
	var err error
	if r.pick, err = admin.OpenPick(admin.PickOptions{Bind: pickListen, Ends: pickEnds, Chooser: r, MaxBody: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.pick.Close() })
	r.client.Transport = &http.Transport{DisableKeepAlives: true}
	r.start()
	return r
}

// start runs the proxy with the files of its example, unchanged, in the folder that docs/proxies.md
// names.
func (r *rig) start() {
	r.t.Helper()
	unpacked := filepath.Join(parts.Cache(), "proxies", "root")
	if _, err := os.Stat(filepath.Join(unpacked, r.p.args[0])); err != nil {
		r.t.Fatalf("%v: run `make test-proxies`", err)
	}
	example, err := filepath.Abs("../../../deploy/proxies/" + r.p.name)
	if err != nil {
		r.t.Fatal(err)
	}
	files := map[string]string{"/etc/" + r.p.name: example, "/etc/passwd": "/etc/passwd", "/etc/group": "/etc/group"}
	for to, from := range r.p.files {
		files[to] = filepath.Join(unpacked, from)
	}
	libraries, err := filepath.Glob(filepath.Join(unpacked, "usr/lib/*-linux-gnu*"))
	if err != nil || len(libraries) == 0 {
		r.t.Fatalf("no libraries in %s (%v)", unpacked, err)
	}
	for _, dir := range libraries {
		files["/usr/lib/"+filepath.Base(dir)] = dir
	}
	for _, dir := range []string{"/lib", "/lib64"} { // of the C library
		if _, err := os.Stat(dir); err == nil {
			files[dir] = dir
		}
	}
	cmd := podkit.Program(r.t, podkit.Machine{Files: files, Dirs: append(r.p.dirs, "/tmp", "/root"), Args: r.p.args, Env: []string{"HOME=/root"}})
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log shows the exit
		close(exited)
	}()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if r.t.Failed() {
			r.t.Logf("%s:\n%s", r.p.name, r.log.String())
		}
	})
	testkit.Await(r.t, "the proxy listens", func() bool {
		select {
		case <-exited:
			r.t.Fatalf("%s ended at start:\n%s", r.p.name, r.log.String())
		default:
		}
		conn, err := net.Dial("tcp", r.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// Choose implements request.Chooser.
func (r *rig) Choose(_ context.Context, q *request.Request) (*request.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := *q
	kept.Headers = nil
	r.requests = append(r.requests, kept)
	if r.refuse {
		return nil, request.Errorf(request.ReasonSaturated, "the pool is full")
	}
	r.inFlight++
	d := &request.Decision{Endpoints: r.order, SetHeaders: []request.HeaderSet{{Name: "x-prefiller-host-port", Value: "10.0.0.3:80"}}}
	d.Release = func(o request.Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inFlight--
		r.outcomes = append(r.outcomes, o)
	}
	return d, nil
}

// settled waits until the proxy has reported the end of every pick, and returns the ends.
func (r *rig) settled() []request.Outcome {
	r.t.Helper()
	testkit.Await(r.t, "every pick has ended", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.inFlight == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes
}

func (r *rig) asked() []request.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// paced sends an event, and a second one on a signal of the test.
func (r *rig) paced(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: first\n\n")
	w.(http.Flusher).Flush()
	select {
	case <-r.next:
		_, _ = io.WriteString(w, "data: second\n\n")
	case <-req.Context().Done():
		r.left <- struct{}{}
	}
}

// ask posts through the proxy; the caller closes the body.
func (r *rig) ask(ctx context.Context, path string, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.addr+path, strings.NewReader(`{"model":"m","prompt":"hello"}`))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}
