package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestMain makes this test program the grapevine command when it is called by
// that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"grapevine": main})
}

// TestScripts runs the sessions in testdata with the real command line.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "addresses": addresses, "appears": appears, "terminate": terminate,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// exits CODE COMMAND [ARGUMENT...] runs a command that ends with an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// addresses NAME... sets variables to addresses on loopback that are the
// script's.
func addresses(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		list, release, err := parts.ReservePorts(1)
		ts.Check(err)
		ts.Defer(release)
		ts.Setenv(name, fmt.Sprintf("127.0.0.1:%d", list[0]))
	}
}

// appears FILE waits until a file is there.
func appears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: appears FILE")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s is not there after a minute", args[0])
}

// terminate SUBCOMMAND sends SIGTERM to what runs in the background.
func terminate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: terminate SUBCOMMAND")
	}
	for _, c := range ts.BackgroundCmds() {
		if len(c.Args) > 1 && c.Args[1] == args[0] {
			ts.Check(c.Process.Signal(syscall.SIGTERM))
			return
		}
	}
	ts.Fatalf("no %s runs in the background", args[0])
}

// TestHelp: every command says what it does and gives an example.
func TestHelp(t *testing.T) {
	for _, c := range newRoot().Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		out, err := exec.Command("grapevine", c.Name(), "--help").Output()
		if err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
		for _, part := range []string{"Usage:\n  grapevine " + c.Name(), "Examples:\n  ", "--help"} {
			if !contains(out, part) {
				t.Errorf("%s --help does not say %q:\n%s", c.Name(), part, out)
			}
		}
		if c.Long == "" && c.Name() != "version" {
			t.Errorf("%s has no description", c.Name())
		}
		if out, err := exec.Command("grapevine", c.Name(), "--no-such-flag").CombinedOutput(); fmt.Sprint(err) != "exit status 2" {
			t.Errorf("%s --no-such-flag: %v: %s", c.Name(), err, out)
		}
	}
}
