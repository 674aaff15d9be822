package federation

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// pairRig is an asking cluster b and the replicas of cluster a, on a network without losses.
type pairRig struct {
	now  time.Time
	b    *Core
	a    map[string]*Core // by target; a missing replica does not answer
	skew time.Duration    // of a's clocks relative to b's
	lost func(Send) bool
}

func newPair(t *testing.T, exports []Export, change func(name string, o *Options)) *pairRig {
	t.Helper()
	return newSkewedPair(t, 0, exports, change)
}

func newSkewedPair(t *testing.T, skew time.Duration, exports []Export, change func(name string, o *Options)) *pairRig {
	t.Helper()
	r := &pairRig{now: time.Unix(100_000, 0), a: map[string]*Core{}, skew: skew}
	build := func(replica string, o Options) *Core {
		o.Replica, o.Secret, o.Lease = replica, simSecret, simLease
		if change != nil {
			change(replica, &o)
		}
		now := r.now
		if o.Self == "a" {
			now = now.Add(skew)
		}
		c, err := New(o, now)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	all := []string{"*/*"}
	r.b = build("b-0", Options{Self: "b", Boot: 9, Peers: []PeerOptions{{Name: "a", Targets: []string{"a-0", "a-1"}, Export: all, Accept: all}}})
	for i, name := range []string{"a-0", "a-1"} {
		r.a[name] = build(name, Options{Self: "a", Boot: uint64(100 + i), Peers: []PeerOptions{{Name: "b", Export: all, Accept: all}}})
		r.a[name].SetExports(exports, r.now.Add(skew))
	}
	return r
}

// run advances the time in ticks and calls each after every tick.
func (r *pairRig) run(d time.Duration, each func()) {
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(50 * time.Millisecond)
		r.deliver(r.b.Tick(r.now, nil), "b")
		for _, name := range []string{"a-0", "a-1"} {
			if c := r.a[name]; c != nil {
				r.deliver(c.Tick(r.now.Add(r.skew), nil), name)
			}
		}
		if each != nil {
			each()
		}
	}
}

func (r *pairRig) deliver(out []Send, from string) {
	for _, m := range out {
		if r.lost != nil && r.lost(m) {
			continue
		}
		if from != "b" {
			r.deliver(r.b.Receive("a", from, m.Frame, r.now, nil), "b")
		} else if c := r.a[m.To]; c != nil {
			r.deliver(c.Receive("b", "b-0", m.Frame, r.now.Add(r.skew), nil), m.To)
		}
	}
}

func (r *pairRig) cluster() *Cluster { return r.b.View(r.now).Cluster("a") }

var somePool = Export{Pool: PoolKey{"ns", "p"}, Ready: []Ready{{Model: "m", Count: 3}}}

// TestReplicaDies: when the asked replica dies, another is asked before the lease ends, so the
// cluster is never silent. Without any replica it becomes silent within the lease.
func TestReplicaDies(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	r.run(time.Second, nil)
	first := r.cluster().Replica
	if first == "" {
		t.Fatal("no replica is connected")
	}
	delete(r.a, first)
	r.run(2*simLease, func() {
		if c := r.cluster(); c.State != Live || !c.Pools[0].Usable(r.now) {
			t.Fatalf("%s after one replica of two died: %s %s", r.now, c.State, c.Reason)
		}
	})
	if second := r.cluster().Replica; second == first {
		t.Fatalf("%s is dead and still connected", second)
	}
	clear(r.a)
	r.run(simLease, nil)
	if c := r.cluster(); c.State != Silent || !strings.Contains(c.Reason, "no answer") || c.Pools[0].Usable(r.now) {
		t.Errorf("all are dead: %s %q", c.State, c.Reason)
	}
}

// TestLeave: a leaving replica sends its asking replicas to another one immediately.
func TestLeave(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	r.run(time.Second, nil)
	first := r.cluster().Replica
	r.deliver(r.a[first].Leave(r.now, nil), first)
	r.run(200*time.Millisecond, nil)
	if c := r.cluster(); c.State != Live || c.Replica == first {
		t.Errorf("%s left: %s, %s is connected", first, c.State, c.Replica)
	}
}

// TestLeaveBehindOneName: with one target for all replicas, as over NATS, seven consecutive asks that
// reach a draining replica do not make the cluster silent.
func TestLeaveBehindOneName(t *testing.T) {
	r := newPair(t, []Export{somePool}, func(name string, o *Options) {
		if name == "b-0" {
			o.Peers[0].Targets = []string{"any"}
		}
	})
	who, asked := "a-0", 0 // the replica that gets the next ask
	var carry func(out []Send, from string)
	carry = func(out []Send, from string) {
		for _, m := range out {
			if from != "b" {
				carry(r.b.Receive("a", "any", m.Frame, r.now, nil), "b")
				continue
			}
			if asked++; who == "a-0" && asked > 7 {
				who = "a-1"
			}
			carry(r.a[who].Receive("b", "b-0", m.Frame, r.now, nil), who)
		}
	}
	run := func(d time.Duration) {
		for end := r.now.Add(d); r.now.Before(end); {
			r.now = r.now.Add(50 * time.Millisecond)
			carry(r.b.Tick(r.now, nil), "b")
			for _, name := range []string{"a-0", "a-1"} {
				carry(r.a[name].Tick(r.now, nil), name)
			}
			if c := r.cluster(); asked > 0 && c.Replica != "" && c.State != Live {
				t.Fatalf("after %d questions: %s %s", asked, c.State, c.Reason)
			}
		}
	}
	run(time.Second)
	asked = 0
	carry(r.a["a-0"].Leave(r.now, nil), "a-0")
	run(2 * simLease)
	if c := r.cluster(); c.State != Live || c.Replica != "a-1" {
		t.Errorf("%s %q, %q is connected", c.State, c.Reason, c.Replica)
	}
}

// TestUnready: a replica that does not have its endpoints yet does not answer for its cluster. If
// no replica does, the reason is shown.
func TestUnready(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	for _, c := range r.a {
		c.SetReady(false, "the pool is not known yet")
	}
	r.run(simLease, nil)
	if c := r.cluster(); c.State == Live || !strings.Contains(c.Reason, "not known yet") {
		t.Errorf("%s %q", c.State, c.Reason)
	}
	r.a["a-1"].SetReady(true, "")
	r.run(simLease, nil)
	if c := r.cluster(); c.State != Live || c.Replica != "a-1" {
		t.Errorf("with one ready replica: %s %q, %q is connected", c.State, c.Reason, c.Replica)
	}
}

// TestWithdraw: a withdrawn export is first draining, then gone.
func TestWithdraw(t *testing.T) {
	r := newPair(t, []Export{somePool}, func(_ string, o *Options) { o.Drain = 2 * time.Second })
	r.run(time.Second, nil)
	for _, c := range r.a {
		c.SetExports(nil, r.now)
	}
	r.run(200*time.Millisecond, nil)
	if c := r.cluster(); len(c.Pools) != 1 || c.Pools[0].State != Draining || c.Pools[0].Usable(r.now) {
		t.Errorf("withdrawn: %+v", c.Pools)
	}
	if own := r.a["a-0"].View(r.now).Exports; len(own) != 1 || !own[0].Draining {
		t.Errorf("own exports: %+v", own)
	}
	r.run(3*time.Second, nil)
	if c := r.cluster(); len(c.Pools) != 0 || c.State != Live {
		t.Errorf("gone: %s %+v", c.State, c.Pools)
	}
}

// TestNotAccepted: a pool that is not accepted is shown as refused and is never usable.
func TestNotAccepted(t *testing.T) {
	r := newPair(t, []Export{somePool}, func(name string, o *Options) {
		if name == "b-0" {
			o.Peers[0].Accept = []string{"other/*"}
		}
	})
	r.run(time.Second, nil)
	p := r.cluster().Pools[0]
	if p.State != Refused || p.Reason == "" || p.Usable(r.now) || p.Filter != nil {
		t.Errorf("%+v", p)
	}
}

// TestOtherSecret: clusters with different secrets share loads but no filters, and show the reason.
func TestOtherSecret(t *testing.T) {
	hot := filter.NewHot(1_000)
	r := newPair(t, []Export{somePool}, func(name string, o *Options) {
		if name == "b-0" {
			o.Secret, _ = filter.NewSecret([]byte("another secret of them"))
		}
	})
	for _, c := range r.a {
		c.SetHot(somePool.Pool, hot)
	}
	r.run(time.Second, nil)
	p := r.cluster().Pools[0]
	if p.State != Live || p.Filter != nil || !strings.Contains(p.FilterNote, "another secret") {
		t.Errorf("%s, filter %v, note %q", p.State, p.Filter, p.FilterNote)
	}
}

// TestBandwidth: filters never exceed the pair's rate, enforced by either side, and are complete
// eventually.
func TestBandwidth(t *testing.T) {
	const rate = 32 << 10
	hot := filter.NewHot(200_000)
	keys := make([]block.Key, 200_000) // a filter of 430 kB
	for i, rng := 0, rand.New(rand.NewPCG(1, 2)); i < len(keys); i++ {
		keys[i] = block.Key(rng.Uint64() | 1<<63)
	}
	hot.Touch(keys)
	for _, keeps := range []string{"a", "b"} {
		r := newPair(t, []Export{somePool}, func(name string, o *Options) {
			if o.Peers[0].Rate = 16 << 20; strings.HasPrefix(name, keeps) {
				o.Peers[0].Rate = rate
			}
		})
		for _, c := range r.a {
			c.SetHot(somePool.Pool, hot)
		}
		got := 0
		r.lost = func(m Send) bool {
			if m.Frame[1] == kindPart {
				got += len(m.Frame)
			}
			return false
		}
		began := r.now
		r.run(5*time.Second, func() {
			if most := int(r.now.Sub(began).Seconds()*rate) + filter.MaxPart + 2*rate; got > most {
				t.Fatalf("rate enforced by %s: %d bytes after %s, limit %d", keeps, got, r.now.Sub(began), most)
			}
		})
		if p := r.cluster().Pools[0]; !strings.Contains(p.FilterNote, "% is here") {
			t.Errorf("%s: after 5 s: %q, %d bytes", keeps, p.FilterNote, got)
		}
		r.run(40*time.Second, nil)
		if p := r.cluster().Pools[0]; p.FilterNote != "" || p.Filter.Blocks() < 200_000 {
			t.Errorf("%s: after 45 s: %q, room for %d", keeps, p.FilterNote, p.Filter.Blocks())
		}
	}
}

// TestEarlierSession: messages for an earlier session, or from a replica other than the asked one,
// are ignored.
func TestEarlierSession(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	r.run(time.Second, nil)
	p := r.b.peers[0]
	m := say{session: p.sessionID(r.b), at: r.now.Sub(r.b.base), boot: p.boot, seq: 1 << 30, lease: simLease, replica: "old"}
	p.another(r.b, p, "for the test", r.now)
	before := *r.cluster()
	r.b.Receive("a", p.Targets[p.target], m.append(nil), r.now, nil)
	m.session = p.sessionID(r.b)
	r.b.Receive("a", "a-9", m.append(nil), r.now, nil)
	if after := r.cluster(); after.Replica != before.Replica || len(after.Pools) != 1 || !after.Until.Equal(before.Until) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	r.b.Receive("a", p.Targets[p.target], m.append(nil), r.now, nil)
	if after := r.cluster(); after.Replica != "old" {
		t.Errorf("answer to the current session was ignored: %+v", after)
	}
}

// TestSessionEndsWithLease: a session ends with its lease, and its filters are dropped later.
func TestSessionEndsWithLease(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	hot := filter.NewHot(10)
	for _, c := range r.a {
		c.SetHot(somePool.Pool, hot)
	}
	r.run(time.Second, nil)
	p := r.a[r.cluster().Replica].peers[0]
	if len(p.sessions) != 1 || len(p.sources) != 1 {
		t.Fatalf("%d sessions, %d sources", len(p.sessions), len(p.sources))
	}
	r.lost = func(Send) bool { return true }
	if r.run(simLease+time.Second, nil); len(p.sessions) != 0 {
		t.Errorf("%d sessions after the lease", len(p.sessions))
	}
	if r.run(keepSources+time.Second, nil); len(p.sources) != 0 {
		t.Errorf("%d sources left", len(p.sources))
	}
}

// TestSlowWay: a delayed answer is valid no longer than if it had arrived immediately.
func TestSlowWay(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	var late []Send
	r.lost = func(m Send) bool {
		if m.Cluster == "b" && len(late) == 0 {
			late = append(late, m)
		}
		return m.Cluster == "b"
	}
	r.run(simLease/5, nil) // one ask; its answer is in transit
	if len(late) == 0 {
		t.Fatal("no answer")
	}
	target := r.b.peers[0].Targets[r.b.peers[0].target]
	r.b.Receive("a", target, late[0].Frame, r.now, nil)
	c := r.cluster()
	if c.State != Live {
		t.Fatalf("%s %s", c.State, c.Reason)
	}
	if left := c.Until.Sub(r.now); left > simLease-simLease/5+100*time.Millisecond {
		t.Errorf("answer to an ask from %s ago is valid for %s", simLease/5, left)
	}
	if c.RTT < simLease/10 {
		t.Errorf("RTT = %s", c.RTT)
	}
}

// TestFlood: the number of answers and of sessions is bounded.
func TestFlood(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	a := r.a["a-0"]
	said := 0
	for i := range 10_000 {
		m := ask{session: 1, at: time.Duration(i), beat: true}
		said += len(a.Receive("b", "link", m.append(nil), r.now, nil))
	}
	if said > 1 {
		t.Errorf("%d answers to 10,000 simultaneous asks", said)
	}
	for i := range 1_000 {
		m := ask{session: uint64(i), beat: true}
		a.Receive("b", "link"+strings.Repeat("x", i), m.append(nil), r.now, nil)
	}
	if n := len(a.peers[0].sessions); n > maxSessions {
		t.Errorf("%d sessions", n)
	}
	if a.Refusals()[RefusedSessions] == 0 {
		t.Error("no refusal was counted")
	}
	a.Receive("stranger", "x", []byte{1, 2}, r.now, nil)
	a.Receive("b", "x", []byte{1, 2}, r.now, nil)
	if n := a.Refusals(); n[RefusedUnknown] != 1 || n[RefusedMalformed] != 1 {
		t.Errorf("refusals: %v", n)
	}
}

// TestReplayedAsks: asks that may be replayed never displace live ones, in any order and number.
func TestReplayedAsks(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	a := r.a["a-0"]
	ask := func(link string, now bool) int {
		m := ask{session: 1 << sessionBits, beat: true}
		n := len(a.Receive("b", link, m.append(nil), r.now, nil))
		if now {
			a.MarkProven("b", link)
		} else {
			a.MarkUnproven("b", link)
		}
		r.now = r.now.Add(time.Millisecond)
		return n
	}
	for i := range 3 * maxSessions {
		ask(fmt.Sprint("recorded ", i), false)
	}
	for i := range maxSessions {
		if n := ask(fmt.Sprint("live ", i), true); n != 1 {
			t.Fatalf("%d answers to live ask %d after replayed ones", n, i)
		}
	}
	for i := range 10 {
		ask(fmt.Sprint("recorded again ", i), false)
	}
	if n := len(a.peers[0].sessions); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
	for i, s := range a.peers[0].sessions {
		if s.proof != proven || s.link != fmt.Sprint("live ", i) {
			t.Errorf("session %d has link %q", i, s.link)
		}
	}
	if a.Refusals()[RefusedSessions] != 10 {
		t.Errorf("refusals: %v", a.Refusals())
	}
	a.MarkUnproven("b", "live 0")
	a.MarkUnproven("b", "nobody")
	a.MarkProven("stranger", "nobody")
	if a.peers[0].sessions[0].proof != proven {
		t.Error("proven session was doubted again")
	}
}

// TestBadOptions: ambiguous names are rejected.
func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no name":      {Replica: "r"},
		"no replica":   {Self: "a"},
		"peer is self": {Self: "a", Replica: "r", Peers: []PeerOptions{{Name: "a"}}},
		"peer twice":   {Self: "a", Replica: "r", Peers: []PeerOptions{{Name: "b"}, {Name: "b"}}},
		"bad pattern":  {Self: "a", Replica: "r", Peers: []PeerOptions{{Name: "b", Accept: []string{"[", "x"}}}},
	} {
		if _, err := New(o, time.Unix(0, 0)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func fullSay() *say {
	return &say{
		session: 1, at: 2, held: 3, boot: 4, seq: 5, lease: 6, leaving: true, replica: "r", secret: [8]byte{7},
		exports: []ack{{
			Export: Export{
				Pool: PoolKey{"ns", "p"}, EPPs: []Address{{"h:1", "sni", "host"}}, Gateways: []Address{{"g:2", "", ""}, {"g:3", "s", ""}},
				Direct: []string{"10.0.0.1:8000"}, Region: "eu", Zone: "eu-1", Ready: []Ready{{"m", 3, 7}, {"", 1, 2}},
				Load: Load{1, 2, 3, 4, 5, .5, .75}, Capacity: Capacity{8, 9},
				Price: Price{.1, .2, .3, .4, .5, .6, .7, "internet"}, Draining: true,
			},
			head: filter.Head{Epoch: 1, Rotation: 2, Buckets: 64, Version: 4, Blocks: 5, Omitted: 6},
		}},
		heard: []verdict{{PoolKey{"ns", "q"}, Refused, "because", NotShown, "no room"}},
		print: 8, served: []PoolKey{{"ns", "p"}, {"ns", "q"}}, servedKnown: true,
	}
}

func messages() map[string]interface{ append([]byte) []byte } {
	return map[string]interface{ append([]byte) []byte }{
		"ask":    &ask{session: 1, at: 2, beat: true, wants: []want{{PoolKey{"ns", "p"}, filter.Position{Epoch: 3, Since: 4, Row: 5}, 6}}, print: 7},
		"say":    fullSay(),
		"part":   &partOf{session: 1, pool: PoolKey{"ns", "p"}, part: []byte{1, 2}},
		"refuse": &refuse{session: 1, at: 2, reason: "because"},
	}
}

// TestMessages: every message decodes to the encoded one.
func TestMessages(t *testing.T) {
	for name, m := range messages() {
		got, err := decodeMessage(m.append(nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(any(m), got, cmp.AllowUnexported(ask{}, want{}, say{}, ack{}, verdict{}, partOf{}, refuse{})); diff != "" {
			t.Errorf("%s (-written +read):\n%s", name, diff)
		}
	}
}

// TestInvalidTextIsRepaired: text that cannot be shown or does not fit is repaired before sending, because the
// receiver would reject it.
func TestInvalidTextIsRepaired(t *testing.T) {
	m := fullSay()
	e := &m.exports[0]
	e.Region, e.Zone = "a\nb\xff", strings.Repeat("é", 200)
	e.Load.KVUsage, e.Load.Requests, e.Load.Wait = -1, -5, -7
	e.Direct = make([]string, maxDirect+5)
	got, err := decodeMessage(m.append(nil))
	if err != nil {
		t.Fatal(err)
	}
	x := got.(*say).exports[0]
	if x.Region != "a?b?" || len(x.Zone) > maxText || !strings.HasPrefix(e.Zone, x.Zone) || len(x.Zone) < maxText-4 || x.Load.KVUsage != 0 || x.Load.Requests != 0 || len(x.Direct) != maxDirect {
		t.Errorf("region %q, zone of %d bytes, load %+v, %d direct", x.Region, len(x.Zone), x.Load, len(x.Direct))
	}
}

// FuzzMessage: any input is rejected or decoded, and a decoded message can be encoded again.
func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.append(nil))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again := m.(interface{ append([]byte) []byte }).append(nil)
		if _, err := decodeMessage(again); err != nil {
			t.Errorf("%+v cannot be decoded again", m)
		}
		if len(again) > 2*len(b)+64 && !bytes.Equal(again, b) {
			t.Errorf("%d bytes became %d", len(b), len(again))
		}
	})
}

// FuzzReceive: no input in any state breaks an invariant.
func FuzzReceive(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.append(nil), false)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte, corrupt bool) {
		r := newPair(t, []Export{somePool}, nil)
		r.run(300*time.Millisecond, nil)
		p := r.b.peers[0]
		if corrupt && len(b) > 11 { // of the current session
			m := append([]byte(nil), b...)
			s := p.sessionID(r.b)
			for i := range 8 {
				m[3+i] = byte(s >> (8 * i))
			}
			b = m
		}
		r.deliver(r.b.Receive("a", p.Targets[p.target], b, r.now, nil), "b")
		r.deliver(r.a["a-0"].Receive("b", "b-0", b, r.now, nil), "a-0")
		r.run(300*time.Millisecond, nil)
		for _, c := range r.b.View(r.now).Clusters {
			for _, x := range c.Pools {
				if x.Usable(r.now) && x.Until.Sub(r.now) > maxLease {
					t.Error("data outlives its lease")
				}
			}
		}
	})
}

// TestTraffic: without filters, a pair's traffic is bounded by the size of its pool data, however
// often loads change (docs/design/multicluster.md).
func TestTraffic(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	bytes := map[byte]int{}
	r.lost = func(m Send) bool { bytes[m.Frame[1]] += len(m.Frame); return false }
	n := int64(0)
	const seconds = 60
	r.run(seconds*time.Second, func() {
		for _, c := range r.a {
			e := somePool
			n++
			e.Load.Requests = n
			c.SetExports([]Export{e}, r.now)
		}
	})
	t.Logf("questions %d B/s, tellings %d B/s", bytes[kindAsk]/seconds, bytes[kindState]/seconds)
	if bytes[kindAsk] > 60*seconds || bytes[kindState] > 1200*seconds {
		t.Errorf("asks %d B/s, answers %d B/s", bytes[kindAsk]/seconds, bytes[kindState]/seconds)
	}
}
