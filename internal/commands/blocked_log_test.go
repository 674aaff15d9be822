package commands

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestServeWithBlockedLog checks a replica whose standard error is a full pipe without a reader: it
// starts, serves and ends within --drain. The exit code is 0, as after an ordinary stop.
func TestServeWithBlockedLog(t *testing.T) {
	list := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(list, []byte("endpoints: [{name: a, address: 127.0.0.1, port: 1}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fillPipe(t, w)
	admin := parts.FreeAddress(t)
	const drain = 10 * time.Second
	cmd := exec.Command("grapevine", "serve", "--endpoints", list, "--listen", "127.0.0.1:0", "--health", "-", "--admin", admin,
		"--plaintext", "--log-level", "debug", "--drain", drain.String(), "--linger", "1ms")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	if err := awaitPage("http://"+admin+"/healthz", time.Minute); err != nil {
		t.Fatalf("/healthz: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("exit after SIGTERM: %v, want code 0", err)
		}
		t.Logf("ended %v after SIGTERM", time.Since(start))
	case <-time.After(drain + 5*time.Second):
		t.Errorf("the process still runs %v after SIGTERM, --drain is %v", time.Since(start), drain)
	}
}

// fillPipe writes until the pipe is full.
func fillPipe(t *testing.T, w *os.File) {
	t.Helper()
	c, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	full := error(nil)
	err = c.Write(func(fd uintptr) bool {
		if full = syscall.SetNonblock(int(fd), true); full != nil {
			return true
		}
		for full == nil {
			_, full = syscall.Write(int(fd), make([]byte, 4096))
		}
		return true
	})
	if err != nil || !errors.Is(full, syscall.EAGAIN) {
		t.Fatal(err, full)
	}
	if err := c.Control(func(fd uintptr) { full = syscall.SetNonblock(int(fd), false) }); err != nil || full != nil {
		t.Fatal(err, full)
	}
}

// awaitPage waits until a page answers 200.
func awaitPage(url string, limit time.Duration) error {
	err := errors.New("not asked")
	for start := time.Now(); time.Since(start) < limit; {
		var resp *http.Response
		if resp, err = http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("status %s", resp.Status)
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}
