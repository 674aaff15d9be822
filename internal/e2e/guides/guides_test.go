package guides

import (
	"bytes"
	"flag"
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

// run runs pages one after another in a fresh checkout, with the programs that the first page builds.
// It returns the checkout.
func run(t *testing.T, pages ...string) string {
	t.Helper()
	dir := checkout(t)
	for i, page := range pages {
		if ran := guide.Run(t, filepath.Join(root, page), dir, "PATH="+filepath.Join(dir, "build")+":"+os.Getenv("PATH")); ran < 3 && i == 0 || ran == 0 {
			t.Errorf("%s: %d blocks were run", page, ran)
		}
	}
	return dir
}

var rewrite = flag.Bool("rewrite", false, "record the pictures of terminals anew")

// record compares the picture of a terminal with what its commands print now. With -rewrite, it
// records the picture anew.
func record(t *testing.T, dir, picture, title string, commands ...string) {
	t.Helper()
	var shots []guide.Shot
	for _, command := range commands {
		c := exec.Command("bash", "-euo", "pipefail", "-c", command)
		c.Dir, c.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "build")+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		shots = append(shots, guide.Shot{Command: command, Output: string(out)})
	}
	path := filepath.Join(root, picture)
	if *rewrite {
		if err := os.WriteFile(path, []byte(guide.Record(title, shots)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := guide.Recorded(string(b))
	for i, s := range shots {
		if i >= len(old) || old[i].Command != s.Command {
			t.Errorf("%s has other commands than the test: record it with -rewrite", picture)
		} else if line := guide.Missing(old[i].Output, s.Output); line != "" {
			t.Errorf("%s shows %q, which %s does not print:\n%s", picture, line, s.Command, s.Output)
		}
	}
}

// TestSeveralPools runs the page on several pools with its example.
func TestSeveralPools(t *testing.T) { run(t, "docs/tasks/several-pools.md") }

// TestSize runs the page on sizes.
func TestSize(t *testing.T) { run(t, "docs/tasks/size.md") }

// TestPrefillDecode runs the page on prefill and decode.
func TestPrefillDecode(t *testing.T) { run(t, "docs/tasks/prefill-decode.md") }

// TestLaptopTutorial runs the tutorial and the pages whose commands use its replica.
func TestLaptopTutorial(t *testing.T) {
	dir := run(t, "docs/get-started/laptop.md",
		"docs/tasks/slow-request.md", "docs/tasks/wrong-placement.md", "docs/tasks/cache-miss.md", "docs/tasks/benchmark.md",
		"docs/tasks/flight-record.md", "docs/tasks/tune-a-policy.md", "docs/get-started/llm-d.md", "docs/tasks/trace.md", "docs/tasks/priorities.md", "docs/tasks/agents.md", "docs/tasks/expressions.md", "docs/tasks/open-webui.md")
	record(t, dir, "docs/get-started/laptop.svg", "Terminal: the explanation of a request, and the state of two engines",
		"grapevine explain --request-id slow-1 | grep -E '^(prompt|choice|runner-up|predicted first)'",
		"grapevine status | grep -A9 ENDPOINT | cut -c1-46")
}

// TestGroupTutorial runs the tutorial and the pages whose commands use its replicas.
func TestGroupTutorial(t *testing.T) {
	run(t, "docs/get-started/group.md",
		"docs/tasks/add-a-model.md", "docs/tasks/rotate-keys.md", "docs/tasks/upgrade.md",
		"docs/tasks/secure.md", "docs/tasks/join-clusters.md", "docs/tasks/go-plugin.md", "docs/tasks/monitor.md")
}
