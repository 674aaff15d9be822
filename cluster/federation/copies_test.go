package federation

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestViewHasEveryField connects two clusters of which one exports a pool with all fields, and compares their
// views of each other.
func TestViewHasEveryField(t *testing.T) {
	var pool Export
	fields.Fill(&pool)
	pool.Pool, pool.Draining, pool.Ready = PoolKey{"ns", "p"}, false, []Ready{{Model: "m", Role: roleDecode, Count: 3}}
	r := newPair(t, []Export{pool}, nil)
	also, err := filter.NewSecret([]byte("another secret, 32 bytes of text"))
	if err != nil {
		t.Fatal(err)
	}
	hot := filter.NewHot(100)
	hot.Touch([]block.Key{1, 2, 3})
	for _, a := range r.a {
		a.SetHotOf(pool.Pool, simSecret, hot)
		a.SetServed([]PoolKey{pool.Pool})
		a.SetSecrets(simSecret, also)
		a.SetPrint(7)
	}
	r.b.SetSecrets(simSecret, also)
	r.b.SetImports([]Import{{Pool: pool.Pool, Clusters: []string{"a"}, Reason: "a reason"}})
	r.run(3*time.Second, nil)
	r.b.peer("a").rtt, r.b.dirty = 3*time.Millisecond, true // messages take no time here

	v := r.b.View(r.now)
	for _, name := range fields.Unset(*v, "Secret", "Also", "Exports") {
		t.Errorf("View.%s is not set", name)
	}
	if v.Secret != simSecret || v.Also != also {
		t.Error("the view does not have both secrets")
	}
	c := v.Cluster("a")
	for _, name := range fields.Unset(*c, "Reason", "Several") { // of unavailable clusters
		t.Errorf("Cluster.%s is not set", name)
	}
	remote := c.Pools[0]
	for _, name := range fields.Unset(*remote, "Reason", "FilterNote", "Filter", "Secret", "Export.Draining", "FilterHead.Omitted") {
		t.Errorf("Remote.%s is not set", name)
	}
	if remote.Filter == nil || remote.Secret != simSecret || remote.Pool != pool.Pool || remote.Price != pool.Price || remote.Load != pool.Load || remote.Engines != pool.Engines {
		t.Errorf("remote pool %+v, want the export %+v with a filter", remote.Export, pool)
	}

	a := r.a[c.Replica]
	acks := acknowledged(r, a)
	if want := (ExportAck{Cluster: "b", State: Live, Shown: IsShown, ShownReason: "a reason"}); len(acks) != 1 || acks[0] != want {
		t.Errorf("acknowledgments %+v, want %+v", acks, want)
	}
	for who, core := range map[string]*Core{"asking": r.b, "answering": a} {
		traffic := core.Traffic()[0]
		except := []string{"Faults", "Sessions", "SourceBlocks", "SourceOmitted", "SourceBytes", "Asked", "Answered"}
		if who == "answering" {
			except = []string{"Faults", "SourceOmitted", "Received", "Sent"}
		}
		for _, name := range fields.Unset(traffic, except...) {
			t.Errorf("%s side: Traffic.%s is not set", who, name)
		}
	}
}

// TestTrafficCountsFaults: rejected messages count for the pair of clusters.
func TestTrafficCountsFaults(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	r.run(time.Second, nil)
	before := r.b.Traffic()[0].Faults
	r.b.Receive("a", "a-0", []byte("not a message"), r.now, nil)
	if got := r.b.Traffic()[0].Faults; got != before+1 {
		t.Errorf("%d faults after a malformed message, want %d", got, before+1)
	}
}

// TestRefusalHasReason: the cluster of an export that is not accepted learns the reason.
func TestRefusalHasReason(t *testing.T) {
	r := newPair(t, []Export{somePool}, func(_ string, o *Options) {
		if o.Self == "b" {
			o.Peers[0].Accept = nil
		}
	})
	r.run(time.Second, nil)
	remote, acks := r.cluster().Pools[0], acknowledged(r, r.a[r.cluster().Replica])
	if remote.State != Refused || remote.Reason == "" || acks[0].State != Refused || acks[0].Reason != remote.Reason {
		t.Errorf("here %s %q, at the exporter %+v, want refused for the same reason", remote.State, remote.Reason, acks)
	}
}

// acknowledged passes b's verdicts to a replica of a, and returns that replica's view of its export.
func acknowledged(r *pairRig, a *Core) []ExportAck {
	p := a.peer("b")
	p.acks, p.until, a.dirty = r.b.verdicts(r.b.peer("a"), r.now), r.now.Add(simLease), true
	return a.View(r.now).Exports[0].Acks
}

// TestAnswersBelongToTheAsk: an answer has the session and the time of its ask, so that late ones are
// recognized, and the state names the process that sends it.
func TestAnswersBelongToTheAsk(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	a := r.a["a-0"]
	a.SetPrint(7)
	m := &ask{session: 5, at: 3 * time.Second, beat: true, print: 9}
	answer := func() any {
		t.Helper()
		out := a.asked(a.peer("b"), "b-0", m, r.now.Add(4*time.Second), nil)
		if len(out) != 1 || out[0].Cluster != "b" || out[0].To != "b-0" {
			t.Fatalf("asked() = %+v, want one message for the link of the ask", out)
		}
		got, err := decodeMessage(out[0].Frame)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	s, ok := answer().(*say)
	if !ok || s.session != m.session || s.at != m.at || s.boot != 100 || s.seq != 1 || s.lease != simLease || s.replica != "a-0" || s.print != 7 || s.leaving || len(s.exports) != 1 {
		t.Errorf("answer %+v, want the session and time of %+v, and this process", s, m)
	}
	refused := func(reason string) {
		t.Helper()
		if got, ok := answer().(*refuse); !ok || got.session != m.session || got.at != m.at || got.reason != reason {
			t.Errorf("answer %+v, want a refusal of %+v: %s", got, m, reason)
		}
	}
	a.SetReady(false, "starting")
	refused("starting")
	a.SetReady(true, "")
	p := a.peer("b")
	p.sessions = nil
	for i := range maxSessions {
		p.sessions = append(p.sessions, &session{link: fmt.Sprint("link", i), id: uint64(1000 + i)})
	}
	refused("too many replicas of your cluster are connected here")
	a.Leave(r.now, nil)
	refused("this replica is leaving")
}

// TestNewSessionKeepsProof: a new session on the same link keeps the knowledge about the link, so that a
// forged ask does not reduce the suspicion.
func TestNewSessionKeepsProof(t *testing.T) {
	r := newPair(t, nil, nil)
	p := r.a["a-0"].peer("b")
	s := p.session("b-0", &ask{session: 1 << sessionBits})
	s.proof = suspected
	if got := p.session("b-0", &ask{session: 2 << sessionBits}); got.id != 2<<sessionBits || got.proof != suspected {
		t.Errorf("session() = %+v, want the new session with the earlier proof", got)
	}
}

// TestForeignStatesAreIgnored: a state that was received already, and one of another process, change nothing.
func TestForeignStatesAreIgnored(t *testing.T) {
	r := newPair(t, []Export{somePool}, nil)
	r.run(time.Second, nil)
	p := r.b.peer("a")
	want := r.cluster().Replica
	for name, m := range map[string]say{
		"repeated":        {boot: p.boot, seq: p.seq},
		"another process": {boot: p.boot + 1, seq: p.seq + 1},
	} {
		m.session, m.at, m.lease, m.replica = p.sessionID(r.b), r.now.Sub(r.b.base), simLease, "another"
		r.b.heard(p, p.Targets[p.target], &m, r.now, nil)
		if got := r.cluster().Replica; got != want {
			t.Errorf("%s state: the replica is %s, want %s still", name, got, want)
		}
	}
}
