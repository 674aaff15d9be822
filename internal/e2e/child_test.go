package e2e

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/sim/vocab"
)

const (
	envChild = "GRAPEVINE_E2E_CHILD" // endpoints file; makes this program a replica
	envModel = "GRAPEVINE_E2E_MODEL" // folder of its model
)

// TestMain lets the test program be a replica that can be killed.
func TestMain(m *testing.M) {
	list := os.Getenv(envChild)
	if list == "" {
		os.Exit(m.Run())
	}
	if err := replica(list, os.Getenv(envModel)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// replica serves until SIGTERM, and then as the program does.
func replica(list, model string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Open(server.Options{
		Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: list, AllowModeOverride: true,
		Models: []server.ModelOptions{{Name: vocab.Name, Path: model}},
		Log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	within(20*time.Second, func() bool { return s.Status().State == "ready" })
	fmt.Println(s.ExtProcAddr())
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s.Drain(end)
	return s.Stop(end)
}

// child is a replica in a process of its own.
type child struct {
	cmd  *exec.Cmd
	addr string
}

// startReplica starts a child and waits until it is ready.
func (r *rig) startReplica() *child {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), envChild+"="+r.list, envModel+"="+r.model)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.kill()
		r.t.Fatalf("replica ended while starting: %v", err)
	}
	c.addr = strings.TrimSpace(line)
	r.childs, r.extproc = append(r.childs, c), append(r.extproc, c.addr)
	return c
}

// kill ends the child at once and waits. Further calls do nothing.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be gone already
	_ = c.cmd.Wait()
}

// terminate asks the child to end and returns how it did.
func (c *child) terminate() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return c.cmd.Wait()
}
