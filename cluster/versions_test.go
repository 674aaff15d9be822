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

// nextBus is the bus of a release with another major protocol version.
type nextBus struct{ cluster.Bus }

const major, nextMajor = 1, 2

// as rewrites frames of version from to version to.
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

// TestMixedVersions upgrades a group to an incompatible release, member by member. During the
// upgrade there are two groups. Each reads every source, serves, and reports the members of the
// other. At the end there is one group.
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
		// drive makes all members read their sources for a while.
		drive := func(d time.Duration, all ...*clustertest.Replica) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				for _, r := range all {
					for _, s := range sources {
						r.Index.Reading(s, r.Sums.Role(s) == cluster.RoleReader)
					}
				}
			}
		}
		// serves checks one of several groups: it has settled, each source has one reader in it,
		// all members have the reader's data, and they report the other group's members.
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
					t.Errorf("readers of %s: %v", s, readers)
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
						t.Errorf("%s: sum of %s is %d, want %d", r.Self().Name, s, got, want)
					}
				}
				for _, name := range foreign {
					if st.Health.State != "degraded" || !strings.Contains(st.Health.Line, "an incompatible protocol version") || !strings.Contains(st.Health.Line, name+" (") {
						t.Errorf("health line of %s is %q, want foreign members %v", r.Self().Name, st.Health.Line, foreign)
					}
				}
				if len(foreign) == 0 && st.Health.State != "joined" {
					t.Errorf("health line of %s is %q", r.Self().Name, st.Health.Line)
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
					t.Errorf("with %d of three upgraded, health line of %s is %q, want %q", i+1, r.Self().Name, got, rolled[i])
				}
			}
			for _, r := range next {
				if lost := r.Status().Lost; len(lost) > 0 && i == 2 {
					t.Errorf("lost members: %v", lost)
				}
			}
		}
		clustertest.Stop(t, next...)
	})
}

// rolled is the health line of the first upgraded member after one, two and three upgrades. (Each
// member counts its own version as 1: see nextBus.)
var rolled = []string{
	"degraded: 2 of 2 other members use an incompatible protocol version, so no state is shared with them: b (2), c (2); this member uses 1",
	"degraded: 1 of 2 other members use an incompatible protocol version, so no state is shared with them: c (2); this member uses 1",
	"joined: 2 other members, all reachable, digests equal",
}

func names(list []*clustertest.Replica) (out []string) {
	for _, r := range list {
		out = append(out, fmt.Sprint(r.Self().Name))
	}
	return out
}
