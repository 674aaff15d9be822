package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func contains(b []byte, part string) bool { return bytes.Contains(b, []byte(part)) }

// demoRun is a demo in its own process. A marker in its environment is inherited by its child
// processes.
type demoRun struct {
	t    *testing.T
	cmd  *exec.Cmd
	mark string
	out  parts.Output
	done chan error
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{t: t, done: make(chan error, 1), mark: fmt.Sprintf("GRAPEVINE_TEST_MARK=%d-%d", os.Getpid(), time.Now().UnixNano())}
	d.cmd = exec.Command("grapevine-lab", append([]string{"demo"}, args...)...)
	d.cmd.Env = append(os.Environ(), d.mark, "TMPDIR="+t.TempDir(), "PATH="+os.Getenv("PATH")+":"+testkit.Build(t, "grapevine"))
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.cmd.WaitDelay = 30 * time.Second
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	return d
}

// processes lists the processes with the marker, including the demo.
func (d *demoRun) processes() (list []string) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !contains(env, d.mark) {
			continue // it has ended, or belongs to another user
		}
		if line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")); err == nil {
			list = append(list, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}

// says waits for a text in the output.
func (d *demoRun) says(text string) {
	d.t.Helper()
	if !testkit.PollUntil(func() bool { return strings.Contains(d.out.String(), text) }) {
		d.t.Fatalf("the demo does not say %q:\n%s", text, d.out.String())
	}
}

// ended waits for the end of the demo and returns its error.
func (d *demoRun) ended() error {
	d.t.Helper()
	select {
	case err := <-d.done:
		return err
	case <-time.After(testkit.HangTimeout):
		d.t.Fatalf("the demo runs %v on:\n%s", testkit.HangTimeout, d.out.String())
		return nil
	}
}

// nothingLeft checks that no process and no file is left.
func (d *demoRun) nothingLeft(files bool) {
	d.t.Helper()
	var list []string
	if !testkit.PollUntil(func() bool { list = d.processes(); return len(list) == 0 }) {
		d.t.Errorf("still running:\n%s", strings.Join(list, "\n"))
	}
	for _, entry := range d.cmd.Env {
		dir, ok := strings.CutPrefix(entry, "TMPDIR=")
		if !ok || !files {
			continue
		}
		if names, err := filepath.Glob(filepath.Join(dir, "grapevine-demo-*")); err != nil || len(names) > 0 {
			d.t.Errorf("left over: %v %v", names, err)
		}
	}
}

const demoPhase = "6s"

// TestDemo runs a short demo: a replica is killed, no request fails, and nothing is left.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--phase", demoPhase)
	d.says("grapevine: Envoy asks any of the replicas")
	// The demo, an Envoy and three replicas, except while a replica is down.
	var list []string
	if !testkit.PollUntil(func() bool { list = d.processes(); return len(list) == 5 }) {
		t.Errorf("%d processes run:\n%s", len(list), strings.Join(list, "\n"))
	}
	if err := d.ended(); err != nil {
		t.Errorf("%v", err)
	}
	out := d.out.String()
	for _, part := range []string{"replica-3 was killed (kill -9)", "replica-3 was killed under load and came back: 0 requests failed.", "OK: no request failed.\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("the demo does not say %q", part)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
	d.nothingLeft(true)
}

// TestDemoInterrupted checks that Ctrl-C stops everything at once, in both phases.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]string{"round robin": "1m", "grapevine": "2s"} {
		t.Run(name, func(t *testing.T) {
			d := startDemo(t, "--phase", phase)
			d.says("\n" + name + ": ")
			if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := d.ended(); fmt.Sprint(err) != "exit status 1" || !strings.HasSuffix(d.out.String(), "has ended\n") {
				t.Errorf("%v:\n%s", err, d.out.String())
			}
			d.nothingLeft(true)
		})
	}
}

// TestDemoKilled checks that the demo's child processes end even if it is killed.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--phase", "2s")
	d.says("\ngrapevine: ")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.ended()
	d.nothingLeft(false)
}
