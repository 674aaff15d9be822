package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestPDRollingUpdate: a pool with prefill and decode endpoints is replaced by another revision, one
// endpoint at a time, under load. All requests are answered, none is split between two revisions, and
// requests are split within both.
func TestPDRollingUpdate(t *testing.T) {
	r := openPD(t, 4, 4, patience)
	revision, list := map[string]string{}, map[string]fleet.Endpoint{}
	all := r.fleet.Endpoints()
	for i := range all {
		e, name := all[i], fmt.Sprintf("p%d", i)
		role, at := "prefill", r.prefill[i%4].Addr()
		if i >= 4 {
			role, at, name = "decode", r.front[i-4], fmt.Sprintf("d%d", i-4)
		}
		of := "old"
		if i%4 >= 2 {
			of = "new"
		}
		revision[at] = of
		e.Labels = map[string]string{endpoint.LabelRole: role, endpoint.LabelRevision: of}
		e.Port = portOf(t, at)
		list[name] = e
	}
	show := func(names string) {
		var now []fleet.Endpoint
		for name := range strings.FieldsSeq(names) {
			now = append(now, list[name])
		}
		r.write(now)
		testkit.Await(t, "the pool is "+names, func() bool { return len(r.servers[0].Status().Endpoints) == len(now) })
	}
	splitBy := func(of string) (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for pair, count := range r.named {
			if pair[0] != "" && revision[pair[0]] == of {
				n += count
			}
		}
		return n
	}
	show("p0 p1 d0 d1")
	var sent, whole atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := sent.Add(1)
				if got := r.stream(strings.Repeat(fmt.Sprintf("request %d of an update. ", n), 20)); got.status != http.StatusOK {
					t.Errorf("request %d: %+v", n, got)
				}
			}
		})
	}
	// served waits until more requests have been served by this pool.
	served := func() {
		until := sent.Load() + 12
		testkit.Await(t, "requests are served", func() bool { return sent.Load() >= until })
	}
	for _, names := range []string{
		"p0 p1 d0 d1", "p0 p1 d0 d1 d2", "p0 p1 d0 d1 d2 p2", "p1 d0 d1 d2 p2", "p1 d1 d2 p2", "p1 d1 d2 p2 p3 d3", "d1 d2 p2 p3 d3", "d2 p2 p3 d3",
	} {
		show(names)
		served()
		if names == "p0 p1 d0 d1 d2" {
			want := []server.RevisionStatus{{Revision: "new", Decode: 1}, {Revision: "old", Prefill: 2, Decode: 2, Complete: true}}
			if st := r.servers[0].Status().PD; st == nil || fmt.Sprint(st.Revisions) != fmt.Sprint(want) {
				t.Errorf("status has the revisions %+v, want %+v", st, want)
			}
		}
	}
	testkit.Await(t, "requests are split within the new revision", func() bool { return splitBy("new") > 0 })
	if splitBy("old") == 0 {
		t.Error("no request was split within the old revision")
	}
	close(stop)
	clients.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for pair, n := range r.named {
		switch {
		case pair[0] == "":
			whole.Add(int64(n))
		case revision[pair[0]] != revision[pair[1]]:
			t.Errorf("%d requests name a prefill endpoint of revision %s to a decode endpoint of %s", n, revision[pair[0]], revision[pair[1]])
		}
	}
	t.Logf("%d requests, %d whole, named prefill endpoints: %v", sent.Load(), whole.Load(), r.named)
}
