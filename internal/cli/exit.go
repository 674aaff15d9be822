package cli

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// flushTime bounds how long an exiting process waits for its last messages to be written.
const flushTime = time.Second

// exit flushes standard error within its bound and ends the process.
func exit(code int) {
	stderr.Flush(flushTime)
	os.Exit(code)
}

// ExitAfter ends the process with code 1 if it still runs when d has passed since ctx was done,
// even if goroutines are blocked. stop withdraws that.
func ExitAfter(ctx context.Context, d time.Duration, log *slog.Logger) (stop func()) {
	return exitAfter(ctx, d, func() {
		log.Error("the process has not stopped in time and exits now", "limit", d)
		stderr.Flush(flushTime / 4)
		os.Exit(1)
	})
}

func exitAfter(ctx context.Context, d time.Duration, end func()) (stop func()) {
	ended, cancel := context.WithCancel(context.Background())
	withdraw := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			end()
		case <-ended.Done():
		}
	})
	return func() { withdraw(); cancel() }
}
