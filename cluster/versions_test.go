package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
)

// nextBus is the bus of a release whose frames begin with another major version.
type nextBus struct{ cluster.Bus }

const major, nextMajor = 1, 2

// as returns a frame of one version as one of another; frames of others stay.
func as(frame []byte, from, to byte) []byte {
	frame = bytes.Clone(frame)
	switch frame[0] {
	case from:
		frame[0] = to
	case to:
		frame[0] = from
	}
	return frame
}

func (b nextBus) Open(ctx context.Context, h cluster.Handler) error {
	return b.Bus.Open(ctx, nextHandler{h})
}

func (b nextBus) Send(e cluster.Envelope) {
	e.Frame = as(e.Frame, major, nextMajor)
	b.Bus.Send(e)
}

type nextHandler struct{ cluster.Handler }

func (h nextHandler) Receive(from string, frame []byte) {
	h.Handler.Receive(from, as(frame, nextMajor, major))
}

// TestMixedVersions rolls a group to a release that its members cannot talk to, one by
// one: there are two groups, each of which reads every source, serves and says which
// members it shares nothing with, and in the end there is one.
func TestMixedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		sources := []string{"e1", "e2", "e3", "e4", "e5"}
		start := func(name string, next bool) *clustertest.Replica {
			self := cluster.NewMember(name, "test")
			opt := cluster.Options{Self: self, Share: cluster.SharePartitioned, Bus: h.Bus(self)}
			if next {
				opt.Bus = nextBus{opt.Bus}
			}
			r := clustertest.NewReplica(opt)
			r.Start(t, sources...)
			return r
		}
		var now, next []*clustertest.Replica
		// drive lets all read what they ought to for a while.
		drive := func(d time.Duration, all ...*clustertest.Replica) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				for _, r := range all {
					for _, s := range sources {
						r.Index.Reading(s, r.Sums.Role(s) == cluster.RoleReader)
					}
				}
			}
		}
		// serves checks one group of several: it has settled, each source has one reader in it,
		// what one reads all know, and what it says of the others.
		batch := uint64(0)
		serves := func(foreign []string, group ...*clustertest.Replica) {
			t.Helper()
			for _, s := range sources {
				var readers []string
				for _, r := range group {
					read := r.Sums.Role(s) == cluster.RoleReader
					for i := r.Index.Position(s).Next; read && i <= batch; i++ {
						r.Append(s, i)
					}
					if read {
						readers = append(readers, r.Self().Name)
					}
				}
				if len(readers) != 1 {
					t.Errorf("%s is read by %v", s, readers)
				}
			}
			drive(500*time.Millisecond, append(slices.Clip(now), next...)...)
			for _, r := range group {
				st := r.Status()
				if st.Phase == "settling" || st.Logs[0].Exact != len(sources) {
					t.Errorf("%s: %s, %+v", r.Self().Name, st.Phase, st.Logs[0])
				}
				for _, s := range sources {
					if got, want := r.Sums.Get(s), (batch+1)*(batch+2)/2; got != want {
						t.Errorf("%s: sum of %s is %d, not %d", r.Self().Name, s, got, want)
					}
				}
				for _, name := range foreign {
					if st.Health.State != "degraded" || !strings.Contains(st.Health.Line, "another version of the protocol") || !strings.Contains(st.Health.Line, name+" (") {
						t.Errorf("%s says %q and means %v", r.Self().Name, st.Health.Line, foreign)
					}
				}
				if len(foreign) == 0 && st.Health.State != "joined" {
					t.Errorf("%s says %q", r.Self().Name, st.Health.Line)
				}
			}
			batch++
		}
		now = []*clustertest.Replica{start("a", false), start("b", false), start("c", false)}
		drive(2*time.Second, now...)
		serves(nil, now...)
		for i, name := range []string{"a", "b", "c"} {
			clustertest.Stop(t, now[0])
			now = now[1:]
			next = append(next, start(name, true))
			drive(5*time.Second, append(slices.Clip(now), next...)...)
			old, young := names(now), names(next)
			if len(now) > 0 {
				serves(young, now...)
				batch-- // the same for both
			}
			serves(old, next...)
			for _, r := range next[:1] {
				if got := r.Status().Health.Line; got != rolled[i] {
					t.Errorf("with %d of three rolled %s says %q, not %q", i+1, r.Self().Name, got, rolled[i])
				}
			}
			for _, r := range next {
				if lost := r.Status().Lost; len(lost) > 0 && i == 2 {
					t.Errorf("lost %v", lost)
				}
			}
		}
		clustertest.Stop(t, next...)
	})
}

// rolled is what the first member that was rolled says when one, two, and three are. (Each
// takes its own version for 1: see nextBus.)
var rolled = []string{
	"degraded: 2 of 2 other members speak another version of the protocol, and nothing is shared with them: b (2), c (2); this one speaks 1",
	"degraded: 1 of 2 other members speak another version of the protocol, and nothing is shared with them: c (2); this one speaks 1",
	"joined: 2 other members, all reachable, digests equal",
}

func names(list []*clustertest.Replica) (out []string) {
	for _, r := range list {
		out = append(out, fmt.Sprint(r.Self().Name))
	}
	return out
}
