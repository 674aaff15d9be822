package budget

import "syscall"

// gentle is how much the system prefers others to a thread that reads large inputs: they have
// three times its part of a processor that both want.
const gentle = 5

// giveWay has the system prefer other threads to this one, for good. It cannot be wrong to go
// on without: it takes longer for others then.
func giveWay() {
	if raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil { // 20 - its niceness
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 20-raw+gentle)
	}
}
