package podkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Environment variables of re-executions of the test binary.
const (
	envInside    = "GRAPEVINE_PODKIT_INSIDE"
	envContainer = "GRAPEVINE_PODKIT_CONTAINER"
)

// Main runs m.Run in new network and mount namespaces and returns the exit code. TestMain calls it
// first, because the kit also starts containers through it.
func Main(m *testing.M) int {
	if config := os.Getenv(envContainer); config != "" {
		fmt.Fprintln(os.Stderr, "podkit:", runContainer(config)) // returns only after an error
		return 125
	}
	if os.Getenv(envInside) != "" {
		if err := openNetwork(); err != nil {
			fmt.Fprintln(os.Stderr, "podkit:", err)
			return 1
		}
		return m.Run()
	}
	code, err := runInside()
	if err != nil {
		fmt.Fprintf(os.Stderr, "podkit: these tests need root and network namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN): %v\n", err)
		return 1
	}
	return code
}

// runInside runs this program again in new namespaces. When it ends, the kernel removes these, with
// all interfaces and mounts.
func runInside() (code int, err error) {
	runtime.LockOSThread() // the child gets a signal when the thread that started it ends
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	c := exec.Command(self, os.Args[1:]...)
	c.Env = append(os.Environ(), envInside+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s := range signals {
			_ = c.Process.Signal(s) // the process may have ended
		}
	}()
	var exited *exec.ExitError
	if err := c.Wait(); errors.As(err, &exited) {
		return max(exited.ExitCode(), 1), nil
	} else if err != nil {
		return 0, err
	}
	return 0, nil
}
