package budget

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestNeeded: live memory counts, garbage does not.
func TestNeeded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux states the anonymous memory of a process")
	}
	if testkit.Raced {
		t.Skip("the race detector keeps memory of its own for each block")
	}
	const size = 256 << 20
	runtime.GC()
	before := Needed()
	block := make([]byte, size)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	runtime.GC() // the block is live at its end
	if got := Needed() - before; got < size*9/10 {
		t.Errorf("Needed() grows by %d MiB, want the block of %d MiB", got>>20, size>>20)
	}
	runtime.KeepAlive(block) // from here on, it is garbage
	runtime.GC()
	if got := Needed() - before; got > size/2 {
		t.Errorf("Needed() has grown by %d MiB, want 0: the block is garbage", got>>20)
	}
}

func TestAnonymous(t *testing.T) {
	root := t.TempDir()
	if got := anonymous(root); got != 0 {
		t.Errorf("anonymous() = %d without a status, want 0", got)
	}
	if err := os.MkdirAll(filepath.Join(root, "proc/self"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/self/status"), []byte("VmRSS:\t  900 kB\nRssAnon:\t  500 kB\nRssFile:\t  300 kB\nRssShmem:\t  100 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := anonymous(root); got != 600<<10 {
		t.Errorf("anonymous() = %d, want %d", got, 600<<10)
	}
}

// TestCeiling: a GOMEMLIMIT below the budget is the limit, also for the pools of a process.
func TestCeiling(t *testing.T) {
	var none *Budget
	if none.Ceiling() != 0 {
		t.Errorf("Ceiling() = %d without a budget", none.Ceiling())
	}
	b := New(1 << 30)
	if got := b.Part(2).Ceiling(); got != 1<<30 {
		t.Errorf("Ceiling() of a part = %d, want %d", got, 1<<30)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20))
	if got := b.Ceiling(); got != 512<<20 {
		t.Errorf("Ceiling() = %d with GOMEMLIMIT, want %d", got, 512<<20)
	}
}
