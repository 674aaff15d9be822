package kubekit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// waitTimeout is the startup timeout of a component on a busy machine.
const waitTimeout = 3 * time.Minute

// Cluster is an API server with its etcd.
type Cluster struct {
	tb     testing.TB
	parts  string // folder of the programs
	dir    string
	port   int
	etcd   string
	server *process

	admin http.Client
	once  sync.Once
	ca    []byte
}

// Start runs etcd and an API server until the end of the test and loads the
// definitions of the folders named, such as gateway and inference.
func Start(tb testing.TB, definitions ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, parts: Parts(tb), dir: tb.TempDir(), port: freePort(tb)}
	c.etcd = fmt.Sprintf("http://127.0.0.1:%d", freePort(tb))
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(tb))
	etcd := c.run("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	tb.Cleanup(etcd.stop)
	c.prepare()
	c.StartServer()
	tb.Cleanup(c.StopServer)
	for _, name := range definitions {
		c.Kubectl("apply", "--server-side", "-f", filepath.Join(c.parts, "crds", name))
	}
	if len(definitions) > 0 {
		c.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	}
	return c
}

// Parts returns the folder of the programs and definitions.
func Parts(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("KUBE_PARTS")
	if _, err := os.Stat(filepath.Join(dir, "ready")); dir == "" || err != nil {
		tb.Fatal("the parts of a Kubernetes API server are missing: make test-kube builds them and sets KUBE_PARTS")
	}
	return dir
}

// prepare writes the files that the API server reads.
func (c *Cluster) prepare() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.must(err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	c.must(err)
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	c.must(err)
	c.write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	c.write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))
	c.write("tokens.csv", []byte("admin,admin,1,system:masters\nepp,epp,2\nother,other,3\n"))
}

// StartServer starts the API server, again after StopServer, and waits until it
// is ready.
func (c *Cluster) StartServer() {
	c.tb.Helper()
	c.server = c.run("kube-apiserver", "--etcd-servers", c.etcd, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--endpoint-reconciler-type", "none", "--secure-port", fmt.Sprint(c.port), "--cert-dir", filepath.Join(c.dir, "certs"),
		"--authorization-mode", "RBAC", "--token-auth-file", filepath.Join(c.dir, "tokens.csv"), "--service-cluster-ip-range", "10.96.0.0/24",
		"--service-account-issuer", "https://kubekit", "--service-account-signing-key-file", filepath.Join(c.dir, "sa.key"),
		"--service-account-key-file", filepath.Join(c.dir, "sa.pub"), "--disable-admission-plugins", "ServiceAccount", "--allow-privileged")
	c.Until("the API server is ready", func() bool {
		if c.server.ended() {
			c.tb.Fatalf("the API server ended:\n%s", c.server.log())
		}
		code, _ := c.Do(http.MethodGet, "/readyz", nil, "")
		return code == http.StatusOK
	})
}

// StopServer kills the API server: to its clients it looks like a machine that disappeared.
func (c *Cluster) StopServer() { c.server.stop() }

// Config returns the administrator's configuration.
func (c *Cluster) Config() kubeapi.Config { return c.As("admin") }

// As returns the configuration of a user: admin, who has all permissions, or epp or other, who have
// only granted ones.
func (c *Cluster) As(user string) kubeapi.Config {
	c.once.Do(func() {
		pem, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
		c.must(err)
		c.ca = pem
	})
	return kubeapi.Config{Server: c.url(), CA: c.ca, Token: user}
}

// Kubeconfig writes the configuration of a user to a file and returns its path.
func (c *Cluster) Kubeconfig(user string) string {
	k := c.As(user)
	c.write("ca.crt", k.CA)
	return c.write(user+".kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.crt}}],
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: %s}}]}`, k.Server, user))
}

// Until waits for a condition.
func (c *Cluster) Until(what string, ok func() bool) {
	c.tb.Helper()
	for end := time.Now().Add(waitTimeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.tb.Fatalf("not within %v: %s\nthe API server said last:\n%s", waitTimeout, what, c.server.log())
		}
	}
}

func (c *Cluster) url() string { return fmt.Sprintf("https://127.0.0.1:%d", c.port) }

func (c *Cluster) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) write(name string, data []byte) string {
	path := filepath.Join(c.dir, name)
	f, err := os.CreateTemp(c.dir, name)
	c.must(err)
	_, err = f.Write(data)
	c.must(errors.Join(err, f.Close(), os.Rename(f.Name(), path))) // rename, because readers may open the file at any time
	return path
}

// process is a program that runs.
type process struct {
	cmd    *exec.Cmd
	output string // file
	done   chan struct{}
}

func (c *Cluster) run(name string, args ...string) *process {
	c.tb.Helper()
	out, err := os.Create(filepath.Join(c.dir, name+".log"))
	c.must(err)
	p := &process{cmd: exec.Command(filepath.Join(c.parts, name), args...), output: out.Name(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.must(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the process was killed, so its exit status is meaningless
		out.Close()
		close(p.done)
	}()
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// log returns the end of the process's output.
func (p *process) log() string {
	data, _ := os.ReadFile(p.output)
	return string(data[max(0, len(data)-4000):])
}

func freePort(tb testing.TB) int {
	tb.Helper()
	list, release, err := parts.ReservePorts(1)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	return list[0]
}

// Kubectl runs kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(args ...string) string {
	c.tb.Helper()
	out, err := c.Command("kubectl", "", args...)
	if err != nil {
		c.tb.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Command runs kubectl or helm as the administrator, with a standard input.
func (c *Cluster) Command(name, input string, args ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.parts, name), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig("admin"), "HELM_CACHE_HOME="+c.dir, "HELM_CONFIG_HOME="+c.dir, "HELM_DATA_HOME="+c.dir)
	cmd.Stdin = strings.NewReader(input)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// Do sends a request as the administrator.
func (c *Cluster) Do(method, path string, body io.Reader, contentType string) (code int, answer string) {
	req, err := http.NewRequest(method, c.url()+path, body)
	c.must(err)
	req.Header.Set("Authorization", "Bearer admin")
	req.Header.Set("Content-Type", contentType)
	c.admin.Timeout = 30 * time.Second
	c.admin.Transport = trusting
	res, err := c.admin.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}
