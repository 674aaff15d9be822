package guides

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/guide"
)

// Commands of the tutorials use fixed ports.
func TestMain(m *testing.M) { os.Exit(testkit.RunApart(m)) }

const root = "../../.."

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

// run runs a page in a fresh checkout.
func run(t *testing.T, path string) {
	if ran := guide.Run(t, filepath.Join(root, path), checkout(t)); ran < 3 {
		t.Errorf("%s: %d blocks were run, want 3 or more", path, ran)
	}
}

// TestSeveralPools runs the page on several pools with its example.
func TestSeveralPools(t *testing.T) { run(t, "docs/tasks/several-pools.md") }

// TestSize runs the page on sizes.
func TestSize(t *testing.T) { run(t, "docs/tasks/size.md") }

func TestLaptopTutorial(t *testing.T) { run(t, "docs/get-started/laptop.md") }
