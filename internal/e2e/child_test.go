package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/commands"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// envChild makes this program run as a replica; its value is a childOptions in JSON.
const envChild = "GRAPEVINE_E2E_CHILD"

// envCommand makes this program run as grapevine, with its arguments.
const envCommand = "GRAPEVINE_E2E_COMMAND"

// childOptions configure the replica.
type childOptions struct {
	Name, List, Model string // List is the endpoints file, Model a folder
	Listen, Admin     string // default: free ports
	Config            string // file; "" for the built-in profile
	XDS, Listener     string // serve xDS there, and Envoy's listener; "" for none
	Linger            time.Duration
	Drain             time.Duration // 0: patience
	MessageTimeout    time.Duration // of the proxy
	Cluster           server.ClusterOptions
}

// TestMain lets the test program run as a replica that tests can kill.
func TestMain(m *testing.M) {
	if address := os.Getenv(envEngine); address != "" {
		fmt.Fprintln(os.Stderr, runEngine(address))
		os.Exit(1)
	}
	if os.Getenv(envCommand) != "" {
		commands.Main(commands.Program{})
		os.Exit(0)
	}
	text := os.Getenv(envChild)
	if text == "" {
		os.Exit(m.Run())
	}
	var o childOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := replica(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// replica serves until SIGTERM, then drains as the program does.
func replica(o childOptions) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Open(server.Options{
		Name: o.Name, Listen: cmp.Or(o.Listen, "127.0.0.1:0"), Health: "-", Admin: cmp.Or(o.Admin, "127.0.0.1:0"),
		Endpoints: o.List, Config: o.Config, AllowModeOverride: true, Linger: o.Linger, MessageTimeout: o.MessageTimeout, Cluster: o.Cluster, XDS: server.XDSOptions{Listen: o.XDS, Listener: o.Listener},
		Models: []server.ModelOptions{{Name: vocab.Name, Path: o.Model}},
		Log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	testkit.PollUntil(func() bool { return s.Status().State == "ready" })
	fmt.Println(s.ExtProcAddr())
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), cmp.Or(o.Drain, patience))
	defer cancel()
	s.Drain(end)
	return s.Stop(end)
}

// child is a replica in its own process.
type child struct {
	cmd  *exec.Cmd
	out  io.Reader
	addr string
}

// startReplica starts a child and waits until it is ready.
func (r *rig) startReplica() *child {
	r.t.Helper()
	c := r.startChild(childOptions{Linger: 5 * time.Second}) // a busy Envoy checks health rarely
	r.childs, r.extproc = append(r.childs, c), append(r.extproc, c.addr)
	return c
}

// startChild starts a child with the rig's engines and model and waits until it is ready.
func (r *rig) startChild(o childOptions) *child {
	r.t.Helper()
	c := r.beginChild(o)
	c.ready(r.t)
	return c
}

// beginChild starts a child without waiting.
func (r *rig) beginChild(o childOptions) *child {
	r.t.Helper()
	o.List, o.Model = r.list, r.model
	text, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), envChild+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		r.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// ready waits until the child reports that it is ready.
func (c *child) ready(t *testing.T) {
	t.Helper()
	line, err := bufio.NewReader(c.out).ReadString('\n')
	if err != nil {
		c.kill()
		t.Fatalf("replica ended while starting: %v", err)
	}
	c.addr = strings.TrimSpace(line)
}

// kill kills the child and waits for its end. It may be called again.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may already have ended
	_ = c.cmd.Wait()
}

// terminate sends SIGTERM and returns the child's exit status.
func (c *child) terminate() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return c.cmd.Wait()
}
