package rig

import (
	"context"
	"fmt"
	"time"
)

// Single is one replica for measurements.
type Single struct {
	ExtProc string // host:port of the external-processing port
	Admin   string // host:port of the admin port
	p       *Process
}

// StartSingle runs `self serve` with args on free ports and waits until it is ready. Its output is
// written to a file in dir.
func StartSingle(ctx context.Context, dir, self string, args ...string) (*Single, error) {
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(k int) string { return fmt.Sprintf("127.0.0.1:%d", ports[k]) }
	r := &Single{ExtProc: at(0), Admin: at(2)}
	args = append([]string{"serve", "--listen", at(0), "--health", at(1), "--admin", at(2)}, args...)
	if r.p, err = Start(dir, "replica-"+fmt.Sprint(ports[0]), self, args...); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	if err := r.p.WaitHTTP(wait, "http://"+r.Admin+"/readyz"); err != nil {
		r.p.Kill()
		return nil, err
	}
	return r, nil
}

// PID returns the process id of the replica.
func (r *Single) PID() int { return r.p.Cmd.Process.Pid }

// Stop stops the replica and waits until it has ended.
func (r *Single) Stop() { r.p.Stop(10 * time.Second) }
