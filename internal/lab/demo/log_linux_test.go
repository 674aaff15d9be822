package demo

import (
	"bufio"
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// logLong is how long TestBlockedLog blocks the log. Lines are lost after about two minutes.
var logLong = flag.Duration("log.long", 8*time.Second, "how long the log of one of three replicas accepts nothing")

const logLost = "grapevine_log_lines_dropped_total"

// refuse sends refusedRate requests for an unknown model per second, which replicas log at level debug,
// until the returned function is called.
func refuse(t *testing.T, url string) (stop func()) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Timeout: 10 * time.Second}
	for range refusers {
		wg.Go(func() {
			tick := time.NewTicker(refusers * time.Second / refusedRate)
			defer tick.Stop()
			for ctx.Err() == nil {
				resp, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"unknown","messages":[]}`))
				if err == nil {
					resp.Body.Close()
					if resp.StatusCode < 400 || resp.StatusCode >= 500 {
						t.Errorf("status %d of a request for an unknown model", resp.StatusCode)
					}
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

const refusedRate, refusers = 100, 8

// TestBlockedLog: the log of one of three replicas behind a real Envoy is a full pipe that nothing
// reads. It continues to serve, no request fails, and lost lines are counted. When the pipe is read
// again, one line reports their number.
func TestBlockedLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "replica-1.log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	o := Options{Options: rig.Options{
		Envoy: parts.Envoy(t), Self: program(t), Engines: 6, Replicas: 3, Share: "partitioned", Slots: faultSlots, Speed: 1,
		Flags: []string{"--log-level", "debug"},
	}}
	stage, err := rig.Open(t.Context(), o.Options, dir, QualityCase{Sharing: rig.Shared}.flags, nil)
	defer func() { stage.Close(t.Context()) }()
	if err != nil {
		t.Fatal(err)
	}
	f := &faultsRun{group: &group{Stage: stage, o: o}}
	if err := f.every(t.Context(), rig.StartLimit, func(time.Time) bool { return f.trusted() }); err != nil {
		t.Fatal(err)
	}
	load := workload.StartPaced(stage.URL, faultRate)
	defer load.Stop()
	blocked, last := stage.List[0], stage.Fleet.Engines()[5].Name()
	decisions := func() int {
		st, err := blocked.Status()
		if err != nil {
			t.Fatalf("the replica with the blocked log has no status: %v", err)
		}
		return st.Decisions
	}
	begun, before, listed := time.Now(), decisions(), true
	looks, unready := 0, 0
	client := &http.Client{Timeout: 3 * time.Second}
	defer refuse(t, stage.URL)()
	err = f.every(t.Context(), *logLong, func(time.Time) bool {
		if looks++; looks%20 == 0 { // a changed list makes loops log
			var without []string
			if listed = !listed; !listed {
				without = []string{last}
			}
			if err := stage.Fleet.WriteEndpoints(filepath.Join(dir, "endpoints.yaml"), without...); err != nil {
				t.Error(err)
			}
		}
		resp, err := client.Get("http://" + blocked.Admin + "/readyz")
		if err != nil || resp.StatusCode != http.StatusOK {
			unready++
		}
		if err == nil {
			resp.Body.Close()
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	s, made := load.Between(begun, time.Now()), decisions()-before
	lost, err := blocked.Metrics(logLost)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %d of %d requests failed; %d decisions at the replica; it was not ready in %d of %d looks; %.0f lines lost",
		*logLong, s.Failed, s.Requests, made, unready, looks, lost[0])
	if s.Failed > 0 || s.Requests == 0 {
		t.Errorf("%d of %d requests failed, the last with: %v", s.Failed, s.Requests, s.Error)
	}
	if made == 0 || unready*10 > looks {
		t.Errorf("%d decisions; not ready in %d of %d looks", made, unready, looks)
	}
	if *logLong < 5*time.Minute {
		return
	}
	if lost[0] == 0 {
		t.Error("no lost line is counted")
	}
	if err := pipe.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if strings.Contains(lines.Text(), "log lines lost") {
			t.Log(lines.Text())
			return
		}
	}
	t.Error("no line reports the lost ones")
}
