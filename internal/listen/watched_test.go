package listen

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestHandshakesDoNotWaitForADisk: while one caller reads a changed file from a hanging disk,
// others get the current value.
func TestHandshakesDoNotWaitForADisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		disk, value := make(chan struct{}), 1
		f := &watched[int]{files: []string{file}, log: slog.New(slog.DiscardHandler), now: time.Now}
		f.read = func() (*int, error) {
			if value > 1 {
				<-disk
			}
			v := value
			return &v, nil
		}
		if err := f.load(); err != nil {
			t.Fatal(err)
		}
		value = 2
		f.stamp = []time.Time{{}} // the file has a new modification time
		time.Sleep(2 * reloadEvery)
		first := make(chan int, 1)
		go func() { first <- *f.get() }()
		synctest.Wait()
		others := make(chan int, 1)
		go func() { others <- *f.get() }()
		synctest.Wait()
		select {
		case v := <-others:
			if v != 1 {
				t.Errorf("get() = %d while the file is read, want 1", v)
			}
		default:
			t.Error("get() waits for another caller's disk")
		}
		close(disk)
		if v := <-first; v != 2 {
			t.Errorf("get() = %d after the file was read, want 2", v)
		}
	})
}
