//go:build !linux

package rig

import "syscall"

// childAttr puts a child into its own process group, so that Ctrl-C reaches only us.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
