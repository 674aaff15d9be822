package rig

import "syscall"

// childAttr puts a child into its own process group (so that Ctrl-C reaches
// only us) and has the kernel kill it when we die.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
