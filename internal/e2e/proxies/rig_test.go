//go:build proxies

package proxies

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kinds"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// proxy is a proxy with an example configuration.
type proxy struct {
	name    string
	files   []string // of deploy/proxies/NAME
	args    func(dir string) []string
	replace func(r *rig) []string // further pairs: text in the files and its replacement in the test
	body    bool                  // the picker sees the body
	second  bool                  // if the first engine fails, a request is sent to a second one
	alone   bool                  // the proxy chooses engines without a picker
	tells   bool                  // the log shows that a client left in the middle of an answer
}

var proxies = []proxy{
	{
		name: "nginx", files: []string{"nginx.conf", "pick.js"}, body: true, second: true, alone: true, tells: true,
		args: func(dir string) []string {
			return []string{"-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-g", "daemon off; master_process off; pid " + dir + "/pid;"}
		},
		replace: func(r *rig) []string {
			temp := ""
			for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
				temp += "\n  " + kind + "_temp_path " + r.dir + "/" + kind + ";"
			}
			return []string{
				"/etc/nginx/", r.dir + "/", "modules/ngx_http", parts.Cache() + "/proxies/root/usr/lib/nginx/modules/ngx_http", "listen 8080", "listen " + r.addr,
				"\nhttp {", "\nhttp {" + temp, "server 127.0.0.1:18001", "server " + r.addrs[0], "server 127.0.0.1:18002", "server " + r.addrs[1],
			}
		},
	},
	{
		name: "haproxy", files: []string{"haproxy.cfg", "pick.lua"}, body: true, second: true, alone: true, tells: true,
		args: func(dir string) []string { return []string{"-db", "-f", filepath.Join(dir, "haproxy.cfg")} },
		replace: func(r *rig) []string {
			host, port, _ := net.SplitHostPort(r.pick.Addr().String())
			name := func(addr string) string { return strings.NewReplacer(".", "_", ":", "_").Replace(addr) }
			return []string{
				"/etc/haproxy/", r.dir + "/", "bind :8080", "bind " + r.addr, `{host = "127.0.0.1", port = 9006}`, `{host = "` + host + `", port = ` + port + `}`,
				"127_0_0_1_18001 127.0.0.1:18001", name(r.addrs[0]) + " " + r.addrs[0], "127_0_0_1_18002 127.0.0.1:18002", name(r.addrs[1]) + " " + r.addrs[1],
			}
		},
	},
	{
		name: "caddy", files: []string{"Caddyfile"},
		args: func(dir string) []string {
			return []string{"run", "--config", filepath.Join(dir, "Caddyfile"), "--adapter", "caddyfile"}
		},
		replace: func(r *rig) []string {
			_, port, _ := net.SplitHostPort(r.addr)
			return []string{"http://:8080", "http://:" + port}
		},
	},
}

// rig is two engines, a scripted picker, and a proxy.
type rig struct {
	t       *testing.T
	p       *proxy
	dir     string
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
	r := &rig{t: t, p: p, dir: t.TempDir(), addr: parts.FreeAddress(t), next: make(chan struct{}), left: make(chan struct{}, 1)}
	for _, name := range []string{"first", "second"} {
		mux := http.NewServeMux()
		mux.Handle("/", kinds.Engine(name))
		mux.HandleFunc("/v1/paced", r.paced)
		e := httptest.NewServer(mux)
		t.Cleanup(e.Close)
		r.engines, r.addrs = append(r.engines, e), append(r.addrs, e.Listener.Addr().String())
	}
	r.order = r.addrs
	var err error
	if r.pick, err = admin.OpenPick(admin.PickOptions{Bind: "127.0.0.1:0", Ends: "127.0.0.1:0", Chooser: r, MaxBody: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.pick.Close() })
	r.client.Transport = &http.Transport{DisableKeepAlives: true}
	r.start()
	return r
}

// start runs the proxy with its example.
func (r *rig) start() {
	r.t.Helper()
	pairs := append([]string{"127.0.0.1:9006", r.pick.Addr().String(), "127.0.0.1:9514", r.pick.EndsAddr().String()}, r.p.replace(r)...)
	found := make([]bool, len(pairs)/2)
	for _, name := range r.p.files {
		raw, err := os.ReadFile(filepath.Join("../../../deploy/proxies", r.p.name, name))
		if err != nil {
			r.t.Fatal(err)
		}
		text := string(raw)
		for i := range found {
			found[i] = found[i] || strings.Contains(text, pairs[2*i])
		}
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(strings.NewReplacer(pairs...).Replace(text)), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	for i, ok := range found {
		if !ok {
			r.t.Fatalf("%s is not in the example", pairs[2*i])
		}
	}
	program := filepath.Join(parts.Cache(), "proxies", "bin", r.p.name)
	if _, err := os.Stat(program); err != nil {
		r.t.Fatalf("%v: run `make test-proxies`", err)
	}
	cmd := exec.Command(program, r.p.args(r.dir)...)
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "XDG_DATA_HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir)
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
