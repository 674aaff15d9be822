package guides

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/guide"
)

// Commands of the tutorials use fixed ports.
func TestMain(m *testing.M) { os.Exit(testkit.RunApart(m)) }

const root = "../../.."

// output is what a background block has printed. It is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// checkout copies the files of the repository into a new folder, as a clone has them.
func checkout(t *testing.T) string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tar := exec.Command("bash", "-c", `tar --null -T - -c | tar -x -C "$0"`, dir)
	tar.Dir, tar.Stdin = root, bytes.NewReader(names)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func run(t *testing.T, path string) {
	page, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := guide.Parse(string(page))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	dir, ran := checkout(t), 0
	for _, b := range blocks {
		if b.Skip != "" {
			t.Logf("%s:%d: not run: %s", path, b.Line, b.Skip)
			continue
		}
		ran++
		var out output
		c := exec.Command("bash", "-euo", "pipefail", "-c", b.Script)
		c.Dir, c.Stdout, c.Stderr = dir, &out, &out
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if b.Until == "" {
			err = c.Wait()
		} else {
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			t.Cleanup(func() {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
				<-ended
			})
			testkit.Await(t, fmt.Sprintf("%s:%d: output %q", path, b.Line, b.Until), func() bool {
				select {
				case err := <-ended:
					ended <- err
					t.Fatalf("%s:%d: ended early: %v\n%s", path, b.Line, err, out.String())
				default:
				}
				return strings.Contains(out.String(), b.Until)
			})
		}
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s", path, b.Line, err, b.Script, out.String())
		}
		if line := guide.Missing(b.Output, out.String()); line != "" {
			t.Errorf("%s:%d: the output has no line %q:\n%s", path, b.Line, line, out.String())
		}
	}
	if ran < 3 {
		t.Errorf("%s: %d blocks were run, want 3 or more", path, ran)
	}
}

// TestSeveralPools runs the page on several pools with its example.
func TestSeveralPools(t *testing.T) { run(t, "docs/tasks/several-pools.md") }

// TestSize runs the page on sizes.
func TestSize(t *testing.T) { run(t, "docs/tasks/size.md") }

func TestLaptopTutorial(t *testing.T) { run(t, "docs/get-started/laptop.md") }
