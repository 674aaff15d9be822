package testkit

import (
	"cmp"
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

// InNamespace starts a command in a new network namespace, as root of a new user namespace. If the
// kernel forbids that, it starts it as root. It calls cmd once or twice.
func InNamespace(cmd func() *exec.Cmd) (*exec.Cmd, error) {
	c := cmd()
	c.SysProcAttr = cmp.Or(c.SysProcAttr, &syscall.SysProcAttr{})
	c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
	c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	user := c.Start()
	if user == nil {
		return c, nil
	}
	c = cmd()
	c.SysProcAttr = cmp.Or(c.SysProcAttr, &syscall.SysProcAttr{})
	c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("this test needs network namespaces: with a user namespace: %w; without: %w "+
			"(sysctl kernel.unprivileged_userns_clone=1, or root with CAP_SYS_ADMIN)", user, err)
	}
	return c, nil
}

const envApart = "GRAPEVINE_TEST_APART"

// RunApart runs m.Run in a new network namespace that has only a loopback device, so that every
// port is free, even below 1024. If the system does not permit that, it prints a note and runs in
// the host's network.
func RunApart(m *testing.M) int {
	if os.Getenv(envApart) != "" {
		if err := loopback(); err != nil {
			fmt.Fprintln(os.Stderr, "loopback device:", err)
			return 1
		}
		return m.Run()
	}
	runtime.LockOSThread() // the child dies with the thread that started it
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	child, err := InNamespace(func() *exec.Cmd {
		c := exec.Command(self, os.Args[1:]...)
		c.Env = append(os.Environ(), envApart+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		return c
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v; they run in the network of this machine, as root and with port 80 free, or fail\n", err)
		return m.Run()
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s := range told {
			_ = child.Process.Signal(s)
		}
	}()
	var ended *exec.ExitError
	switch err := child.Wait(); {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1)
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// loopback takes the loopback device up.
func loopback() error {
	ctl, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ctl)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(ctl, unix.SIOCSIFFLAGS, r)
}
