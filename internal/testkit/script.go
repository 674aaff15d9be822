package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// RunScripts runs the scripts in testdata. others names the module's commands, other than the test
// program itself, that are built for the scripts.
func RunScripts(t *testing.T, others ...string) {
	path := Build(t, others...)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+path)
			return nil
		},
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

// addresses NAME... sets variables to addresses on loopback that are reserved for
// the script.
func addresses(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		list, release, err := parts.ReservePorts(1)
		ts.Check(err)
		ts.Defer(release)
		ts.Setenv(name, fmt.Sprintf("127.0.0.1:%d", list[0]))
	}
}

// appears FILE waits until a file exists.
func appears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: appears FILE")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s does not exist after a minute", args[0])
}

// terminate SUBCOMMAND sends SIGTERM to the command that runs in the background
// with that subcommand.
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

// CheckHelp fails the test unless every subcommand of root, which is on the PATH,
// describes itself with an example and refuses unknown flags with exit code 2.
func CheckHelp(t *testing.T, root *cobra.Command) {
	t.Helper()
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		out, err := exec.Command(root.Name(), c.Name(), "--help").Output()
		if err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
		for _, part := range []string{"Usage:\n  " + root.Name() + " " + c.Name(), "Examples:\n  ", "--help"} {
			if !bytes.Contains(out, []byte(part)) {
				t.Errorf("%s --help does not say %q:\n%s", c.Name(), part, out)
			}
		}
		if c.Long == "" && c.Name() != "version" {
			t.Errorf("%s has no description", c.Name())
		}
		if out, err := exec.Command(root.Name(), c.Name(), "--no-such-flag").CombinedOutput(); fmt.Sprint(err) != "exit status 2" {
			t.Errorf("%s --no-such-flag: %v: %s", c.Name(), err, out)
		}
	}
}
