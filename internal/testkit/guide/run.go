package guide

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// limit is the longest time that a block may take. The longest ones build programs.
const limit = 5 * time.Minute

// Run runs the shell blocks of the page in a file, in order, in the folder dir and with additional
// environment variables, and compares their output with that of the page. Programs in the background end
// with the test. It returns the number of blocks that were run.
func Run(t *testing.T, path, dir string, env ...string) (ran int) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := Parse(string(page))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, b := range blocks {
		if b.Skip != "" {
			t.Logf("%s:%d: not run: %s", path, b.Line, b.Skip)
			continue
		}
		if b.On != "" {
			t.Logf("%s:%d: run by the test on %s", path, b.Line, b.On)
			continue
		}
		ran++
		var out parts.Output
		c := exec.Command("bash", "-euo", "pipefail", "-c", b.Script)
		c.Dir, c.Stdout, c.Stderr, c.Env = dir, &out, &out, append(os.Environ(), env...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if b.Until == "" {
			late := time.AfterFunc(limit, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
			err = c.Wait()
			if !late.Stop() {
				t.Fatalf("%s:%d: not ended after %v\n%s%s", path, b.Line, limit, b.Script, out.String())
			}
			if syscall.Kill(-c.Process.Pid, 0) == nil { // it started programs that are still running
				t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM) })
			}
		} else {
			ended := make(chan struct{})
			var problem error
			go func() {
				problem = c.Wait()
				close(ended)
			}()
			t.Cleanup(func() {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
				<-ended
			})
			testkit.Await(t, fmt.Sprintf("%s:%d: output %q", path, b.Line, b.Until), func() bool {
				select {
				case <-ended:
					t.Fatalf("%s:%d: ended early: %v\n%s", path, b.Line, problem, out.String())
				default:
				}
				return strings.Contains(out.String(), b.Until)
			})
		}
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s", path, b.Line, err, b.Script, out.String())
		}
		if line := Missing(b.Output, out.String()); line != "" {
			t.Errorf("%s:%d: the output has no line %q:\n%s", path, b.Line, line, out.String())
		}
	}
	return ran
}
