package demo

import (
	"context"
	"fmt"
	"time"
)

// Replica is one picker process, for measurements.
type Replica struct {
	ExtProc string // host:port of the external-processing port
	Admin   string // host:port of the admin port
	p       *process
}

// StartReplica runs self with serve and args on free ports and waits until it
// is ready. Its output goes to a file in dir.
func StartReplica(ctx context.Context, dir, self string, args ...string) (*Replica, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(k int) string { return fmt.Sprintf("127.0.0.1:%d", ports[k]) }
	r := &Replica{ExtProc: at(0), Admin: at(2)}
	args = append([]string{"serve", "--listen", at(0), "--health", at(1), "--admin", at(2)}, args...)
	if r.p, err = startProcess(dir, "replica-"+fmt.Sprint(ports[0]), self, args...); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := r.p.waitHTTP(wait, "http://"+r.Admin+"/readyz"); err != nil {
		r.p.kill()
		return nil, err
	}
	return r, nil
}

// PID is the replica's process id.
func (r *Replica) PID() int { return r.p.cmd.Process.Pid }

// Stop ends the replica and waits for it.
func (r *Replica) Stop() { r.p.stop(10 * time.Second) }
