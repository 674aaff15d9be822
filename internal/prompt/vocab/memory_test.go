package vocab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// envLoad makes TestMemoryOfLoads the process that is measured.
const envLoad = "GRAPEVINE_TEST_LOAD"

// maxLoad is the maximum memory of a process in MiB. It applies after the first load of the
// vocabulary of Qwen 3, and after a second load while the first one is in use.
const maxLoad = 100

// TestMemoryOfLoads measures the memory of a process that reads a large vocabulary,
// as the kernel counts it.
func TestMemoryOfLoads(t *testing.T) {
	if file := os.Getenv(envLoad); file != "" {
		var inUse *Vocab
		for range 2 {
			v, err := Load(file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("peak", peak(t))
			runtime.KeepAlive(inUse)
			inUse = v
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfLoads$")
	cmd.Env = append(os.Environ(), envLoad+"="+filepath.Join(parts.Model(t, "qwen3"), "tokenizer.json"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var peaks []int
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "peak" {
			n, _ := strconv.Atoi(f[1])
			peaks = append(peaks, n>>10)
		}
	}
	t.Logf("MiB at the start and at a reload: %v", peaks)
	if len(peaks) != 2 || peaks[0] <= 0 || peaks[0] > maxLoad || peaks[1] > maxLoad {
		t.Errorf("peaks of %v MiB, want two of at most %d", peaks, maxLoad)
	}
}

// peak returns the most memory that the process has had, in KiB.
func peak(t *testing.T) int {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) >= 2 && f[0] == "VmHWM:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	t.Fatal("the kernel does not tell the peak")
	return 0
}
