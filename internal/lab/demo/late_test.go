package demo

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// starve lets a process run for a few milliseconds of each 400, until the returned function is
// called.
func starve(p interface {
	Signal(sig syscall.Signal) error
}) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_ = p.Signal(syscall.SIGSTOP)
			time.Sleep(400 * time.Millisecond)
			_ = p.Signal(syscall.SIGCONT)
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// signaller sends signals to a replica's process.
type signaller struct{ r *rig.Replica }

// Signal implements the parameter of starve.
func (s signaller) Signal(sig syscall.Signal) error { return s.r.Cmd.Process.Signal(sig) }

// TestReplicaWithoutProcessorTimeLeaves gives one of three replicas behind a real Envoy 1% of the
// processor time. It leaves service, says why, and gets no requests. It returns when it is on time.
func TestReplicaWithoutProcessorTimeLeaves(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := Options{Options: rig.Options{Envoy: parts.Envoy(t), Self: program(t), Engines: 4, Replicas: 3, Share: "partitioned", Slots: 8, Speed: 1}, Out: &out}
	err := o.stage(t.Context(), QualityCase{Sharing: rig.Shared}, func(g *group) error {
		f := &faultsRun{group: g}
		if err := f.every(t.Context(), rig.StartLimit, func(time.Time) bool { return f.trusted() }); err != nil {
			return err
		}
		load := workload.StartPaced(g.URL, 10)
		defer load.Stop()
		slow := g.List[0]
		readiness := func() string {
			resp, err := http.Get("http://" + slow.Admin + "/readyz")
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return fmt.Sprint(resp.StatusCode, " ", string(text))
		}
		await := func(what string, limit time.Duration, is func() bool) {
			t.Helper()
			begun, seen := time.Now(), false
			err := f.every(t.Context(), limit, func(time.Time) bool {
				seen = is()
				return seen
			})
			if err != nil || !seen {
				t.Fatalf("not within %v: %s; %s", limit, what, readiness())
			}
			t.Logf("%s after %v", what, time.Since(begun).Round(100*time.Millisecond))
		}
		await("ready", time.Minute, func() bool { return strings.HasPrefix(readiness(), "200") })
		release := starve(signaller{slow})
		defer func() { release() }()
		await("out of service", 90*time.Second, func() bool {
			text := readiness()
			return strings.HasPrefix(text, "503") && strings.Contains(text, "timers of this replica")
		})
		decisions := func(r *rig.Replica) int {
			n := -1
			err := f.every(t.Context(), time.Minute, func(time.Time) bool {
				st, err := r.Status() // fails at times, because the starved replica answers late
				if err != nil {
					return false
				}
				n = st.Decisions
				return true
			})
			if err != nil || n < 0 {
				t.Fatalf("%s has no status: %v", r.Name, err)
			}
			return n
		}
		before, changed := decisions(slow), time.Now()
		await("without requests for two seconds", time.Minute, func() bool {
			if now := decisions(slow); now != before {
				before, changed = now, time.Now()
			}
			return time.Since(changed) > 2*time.Second
		})
		begun := time.Now()
		time.Sleep(5 * time.Second)
		if n := decisions(slow) - before; n > 2 {
			t.Errorf("%d decisions of a replica that is out", n)
		}
		for _, r := range g.List[1:] {
			if decisions(r) == 0 {
				t.Errorf("no decision of a replica that is on time")
			}
		}
		if s := load.Between(begun, time.Now()); s.Requests == 0 || s.Failed > 0 {
			t.Errorf("%d of %d requests failed", s.Failed, s.Requests)
		}
		release()
		release = func() {}
		await("ready again", 2*time.Minute, func() bool { return strings.HasPrefix(readiness(), "200") })
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
