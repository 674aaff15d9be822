package events

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/order"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// reader is a manager with its own index.
type reader struct {
	*Manager
	index *indexer.Index
	reg   *prometheus.Registry
}

// patience is the time limit for expected events, long enough for a busy machine.
const patience = testkit.HangTimeout

func testOptions() Options {
	return Options{
		Hasher: testHasher(), CoolDown: 20 * time.Millisecond, ReplayIdle: patience / 6,
		BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Handshake: patience,
	}
}

func openReader(tb testing.TB, opt Options) *reader {
	r := &reader{index: newIndex(), reg: prometheus.NewRegistry()}
	opt.Index, opt.Registry = r.index, r.reg
	r.Manager = Open(opt)
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

var testModel = &Model{Name: "model"}

func (r *reader) follow(streams ...Stream) {
	for i := range streams {
		streams[i].Rank = testSource.Rank
	}
	r.Set([]EndpointSource{{ID: testSource.Endpoint, Name: "10.0.0.3:8000", Model: testModel, Streams: streams}})
}

// agrees waits until the index of r equals e's content and its state is exact.
func (r *reader) agrees(tb testing.TB, e *fakeEngine) {
	tb.Helper()
	end := time.Now().Add(patience)
	for {
		k := r.Knowledge(testSource.Endpoint)
		got, want := digestOf(r.index), e.digest()
		if got == want && k.State.Followed() {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("after %v: %s (%+v), want %s", patience, got, k, want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestFollow(t *testing.T) {
	e := newFakeEngine(t, 1)
	e.publish(50) // before we join
	r := openReader(t, testOptions())
	r.follow(e.stream())
	r.agrees(t, e)
	for range 20 {
		e.publish(20)
		r.agrees(t, e)
	}
	k := r.Knowledge(testSource.Endpoint)
	if !k.Complete || k.Behind != 0 || k.Lag > patience {
		t.Errorf("%+v", k)
	}
	if p, ok := r.Position(testSource); !ok || p.Seq != 450 || p.Sum != order.Sum(e.ring[449]) {
		t.Errorf("position %+v, %v", p, ok)
	}
	if n := testutil.ToFloat64(r.metrics.batches.WithLabelValues(pathLive)); n < 400 || n > 450 {
		t.Errorf("%v live batches counted", n)
	}
}

func TestLostBatchesAndReplies(t *testing.T) {
	e := newFakeEngine(t, 2)
	e.dropLive, e.dropReply = 5, 5
	r := openReader(t, testOptions())
	r.follow(e.stream())
	for range 30 {
		e.publish(30)
		time.Sleep(2 * time.Millisecond)
	}
	e.mu.Lock()
	e.dropLive = 0
	e.mu.Unlock()
	e.publish(1)
	r.agrees(t, e)
	if n := testutil.ToFloat64(r.metrics.failures.WithLabelValues("gap")); n == 0 {
		t.Error("no gap was counted")
	}
}

// A publisher can take longer to learn of a subscription than the first replay waits. What it publishes
// in between is not sent to this reader. The reader finds it without another batch.
func TestBatchesBeforeSubscription(t *testing.T) {
	e := newFakeEngine(t, 4)
	e.dropLive = 100
	r := openReader(t, testOptions())
	r.follow(e.stream())
	testkit.Await(t, "the first replay", func() bool { return r.Knowledge(testSource.Endpoint).State.Followed() })
	e.publish(3)
	r.agrees(t, e)
}

func TestRestarts(t *testing.T) {
	for name, before := range map[string]int{"behind": 0, "ahead": 300, "at the same number": 100} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t, 3)
			r := openReader(t, testOptions())
			r.follow(e.stream())
			testkit.Await(t, "the subscription", func() bool { return e.pub.Subscribers() == 1 })
			e.publish(100)
			r.agrees(t, e)
			e.restart(before)
			r.agrees(t, e)
			e.publish(50)
			r.agrees(t, e)
		})
	}
}

// A stream that reconnects continues at its position. Nothing is read a second time, and the
// translator's state equals the state without an interruption.
func TestReconnectsGoOn(t *testing.T) {
	for _, page := range []int{16, 1} {
		t.Run(fmt.Sprint("pages of ", page), func(t *testing.T) {
			e := newFakeEngine(t, 5)
			e.page = page
			r := openReader(t, testOptions())
			r.follow(e.stream())
			e.publish(50)
			r.agrees(t, e)
			for range 25 {
				e.breakOff(5)
				e.publish(5)
				r.agrees(t, e)
			}
			if n := testutil.ToFloat64(r.metrics.connects.WithLabelValues(resultOK)); n < 20 {
				t.Fatalf("connected %v times", n)
			}
			s := r.streams[testSource]
			s.mu.Lock()
			defer s.mu.Unlock()
			if c := s.order.Counts(); c.Restarts+c.Rebuilds != 0 || s.tr.Stats() != e.truth.tr.Stats() {
				t.Errorf("%+v, %+v; the engine's own account is %+v", c, s.tr.Stats(), e.truth.tr.Stats())
			}
		})
	}
}

func TestWrappedRing(t *testing.T) {
	e := newFakeEngine(t, 4)
	e.maxRing = 50
	r := openReader(t, testOptions())
	r.follow(e.stream())
	e.publish(40)
	r.agrees(t, e)
	// After an absence longer than the ring, only the ring's content can be recovered.
	e.mute = true
	e.publish(200)
	e.mute = false
	e.publish(1)
	end := time.Now().Add(patience)
	for k := r.Knowledge(testSource.Endpoint); k.State != knowledge.Partial || k.Complete; k = r.Knowledge(testSource.Endpoint) {
		if time.Now().After(end) {
			t.Fatalf("%+v", k)
		}
		time.Sleep(time.Millisecond)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known := newRig()
	for _, p := range e.ring {
		var b decode.Batch
		_ = b.Decode(p)
		known.apply(b.Events...)
	}
	if got, want := digestOf(r.index), digestOf(known.index); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWithoutReplay(t *testing.T) {
	e := newFakeEngine(t, 5)
	r := openReader(t, testOptions())
	at := e.stream()
	at.Replay = ""
	r.follow(at)
	testkit.Await(t, "the subscription", func() bool { return e.pub.Subscribers() == 1 })
	e.publish(60)
	r.agrees(t, e)
	e.mute = true
	e.publish(3)
	e.mute = false
	e.publish(1)
	testkit.Await(t, "doubt", func() bool { return r.Knowledge(testSource.Endpoint).State == knowledge.Approximate })
	if n := testutil.ToFloat64(r.metrics.failures.WithLabelValues("lost_batch")); n != 3 {
		t.Errorf("%v lost batches counted", n)
	}
	r.Confirm(testSource.Endpoint)
	if k := r.Knowledge(testSource.Endpoint); k.State != knowledge.Exact || r.State(testSource.Endpoint) != k.State {
		t.Errorf("%+v after somebody has vouched", k)
	}
}

func TestReplayOutOfReach(t *testing.T) {
	e := newFakeEngine(t, 6)
	at := e.stream()
	at.Replay = "tcp://" + parts.FreeAddress(t)
	r := openReader(t, testOptions())
	r.follow(at)
	testkit.Await(t, "the subscription", func() bool { return e.pub.Subscribers() == 1 })
	e.publish(20)
	testkit.Await(t, "batches without replay", func() bool { return digestOf(r.index) == e.digest() })
	if k := r.Knowledge(testSource.Endpoint); k.State != knowledge.Approximate || r.State(testSource.Endpoint) != k.State {
		t.Errorf("%+v", k)
	}
	// The socket appears: everything is fetched, and the state is exact again.
	router, err := zmtp.ListenRouter(at.Replay, e.replay, zmtp.RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	r.agrees(t, e)
}

// TestPeers: the deltas of the hook build the same index at another replica, across losses and a
// restart, and a stream can be resumed from that index.
func TestPeers(t *testing.T) {
	e := newFakeEngine(t, 7)
	var mu sync.Mutex
	peer := newIndex()
	var last Update
	opt := testOptions()
	opt.OnDelta = func(u Update) {
		mu.Lock()
		defer mu.Unlock()
		peer.Apply(u.Source, u.Delta)
		last = u
	}
	restarted := make(chan struct{}, 9)
	opt.OnRestart = func(block.Source, bool) { restarted <- struct{}{} }
	r := openReader(t, opt)
	r.follow(e.stream())
	e.dropLive = 3
	e.publish(100)
	e.dropLive = 0
	e.publish(1)
	r.agrees(t, e)
	r.SetIncarnation(testSource, 76)
	e.restart(20)
	select {
	case <-restarted:
	case <-time.After(patience):
		t.Fatal("the restart was not noticed")
	}
	r.SetIncarnation(testSource, 77)
	e.publish(100)
	r.agrees(t, e)
	_ = r.Close()
	mu.Lock()
	defer mu.Unlock()
	if got, want := digestOf(peer), e.digest(); got != want {
		t.Fatalf("peer has %s, want %s", got, want)
	}
	if last.After.Incarnation != 77 || last.After.Seq != 120 || last.After.Sum == 0 {
		t.Errorf("position %+v", last.After)
	}

	// Another replica takes over with the peer's index.
	opt = testOptions()
	opt.Index = peer
	opt.Resume = func(block.Source) (Position, bool) { return last.After, true }
	e.publish(10)
	replays := e.asked()
	m := Open(opt)
	defer m.Close()
	r2 := &reader{Manager: m, index: peer}
	r2.follow(e.stream())
	r2.agrees(t, e)
	if n := testutil.ToFloat64(m.metrics.replayed); n != 10 || e.asked() != replays+1 {
		t.Errorf("%v batches replayed in %d replays after resuming, want 10 in 1", n, e.asked()-replays)
	}
}

// TestHostileEngine: invalid data from one publisher harms neither the process nor other streams.
func TestHostileEngine(t *testing.T) {
	pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	router, err := zmtp.ListenRouter("tcp://127.0.0.1:0", func(c *zmtp.RouterConn, _ [][]byte) {
		_ = c.Send(nil, []byte("what?"))
	}, zmtp.RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	e := newFakeEngine(t, 8)
	r := openReader(t, testOptions())
	good := e.stream()
	good.Rank = testSource.Rank
	r.Set([]EndpointSource{
		{ID: testSource.Endpoint, Name: "good", Model: testModel, Streams: []Stream{good}},
		{ID: 9, Name: "bad", Model: testModel, Streams: []Stream{{
			Events: "tcp://" + pub.Addr().String(), Replay: "tcp://" + router.Addr().String()}}},
	})
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	rng := rand.New(rand.NewSource(8))
	junk := make([]byte, 300)
	for i := range 2000 {
		rng.Read(junk)
		n := rng.Intn(len(junk))
		switch i % 4 {
		case 0:
			_ = pub.Send(junk[:n])
		case 1:
			_ = pub.Send(nil, junk[:8], junk[:n])
		case 2:
			_ = pub.Send(nil, binary.BigEndian.AppendUint64(nil, uint64(i)), junk[:n])
		case 3:
			_ = pub.Send(nil, binary.BigEndian.AppendUint64(nil, endMarker), nil, nil, nil, nil)
		}
	}
	e.publish(100)
	r.agrees(t, e)
	testkit.Await(t, "malformed messages", func() bool {
		return testutil.ToFloat64(r.metrics.malformed.WithLabelValues(whatMessage)) > 0
	})
}

// TestSet: streams follow the configuration, and removed streams leave the documented state.
func TestSet(t *testing.T) {
	e := newFakeEngine(t, 9)
	r := openReader(t, testOptions())
	r.follow(e.stream())
	e.publish(30)
	r.agrees(t, e)

	r.Set(nil)
	if k := r.Knowledge(testSource.Endpoint); k.State != knowledge.Approximate || r.State(testSource.Endpoint) != k.State {
		t.Errorf("%+v for an endpoint without streams", k)
	}
	before := digestOf(r.index)
	e.publish(10)
	time.Sleep(20 * time.Millisecond)
	if digestOf(r.index) != before {
		t.Error("a batch was applied after the stream had left")
	}

	r.follow(e.stream())
	r.agrees(t, e)

	// Another model has other keys, so everything starts over.
	at := e.stream()
	at.Rank = testSource.Rank
	r.Set([]EndpointSource{{ID: testSource.Endpoint, Name: "10.0.0.3:8000", Model: &Model{Name: "other"}, Streams: []Stream{at}}})
	testkit.Await(t, "the other model", func() bool {
		n, _ := r.index.Digest(testSource)
		want, _ := e.truth.index.Digest(testSource)
		return n == want && digestOf(r.index) != e.digest() && r.Knowledge(testSource.Endpoint).State.Followed()
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	e := newFakeEngine(t, 10)
	m := Open(func() Options { o := testOptions(); o.Index = newIndex(); return o }())
	gone := "tcp://" + parts.FreeAddress(t)
	m.Set([]EndpointSource{
		{ID: 1, Model: testModel, Streams: []Stream{e.stream()}},
		{ID: 2, Model: testModel, Streams: []Stream{{Events: gone, Replay: gone}}},
		{ID: 3, Model: testModel, Streams: []Stream{{Events: e.stream().Events, Replay: gone}}},
	})
	e.publish(100)
	time.Sleep(50 * time.Millisecond)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	e.stop()
	testkit.Await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	m.Set([]EndpointSource{{ID: 1, Model: testModel, Streams: []Stream{e.stream()}}})
	if runtime.NumGoroutine() > before {
		t.Error("a closed manager starts streams")
	}
}

func TestReplaysAreLimited(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	router, err := zmtp.ListenRouter("tcp://127.0.0.1:0", func(c *zmtp.RouterConn, _ [][]byte) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		_ = c.Send(nil, binary.BigEndian.AppendUint64(nil, endMarker), nil)
	}, zmtp.RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	opt := testOptions()
	opt.Replays = 3
	r := openReader(t, opt)
	var endpoints []EndpointSource
	for i := range 40 {
		endpoints = append(endpoints, EndpointSource{
			ID: block.EndpointID(i), Name: fmt.Sprint(i), Model: testModel,
			Streams: []Stream{{Events: "tcp://" + pub.Addr().String(), Replay: "tcp://" + router.Addr().String()}},
		})
	}
	r.Set(endpoints)
	testkit.Await(t, "all endpoints", func() bool {
		for i := range endpoints {
			if r.Knowledge(block.EndpointID(i)).State != knowledge.Exact {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	if most > 3 {
		t.Errorf("%d replays at a time", most)
	}
}

func TestStateMetrics(t *testing.T) {
	r := openReader(t, testOptions())
	r.follow(Stream{Events: "tcp://" + parts.FreeAddress(t)})
	err := testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP grapevine_events_state State of an event stream: 1 for the state that it is in.
# TYPE grapevine_events_state gauge
grapevine_events_state{endpoint="10.0.0.3:8000",rank="1",state="approximate"} 1
`), "grapevine_events_state")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r.reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestPortStreams(t *testing.T) {
	got := PortStreams("fd00::5", 5557, 5600, 2, "kv@")
	want := "[{0 tcp://[fd00::5]:5557 tcp://[fd00::5]:5600 kv@} {1 tcp://[fd00::5]:5558 tcp://[fd00::5]:5601 kv@}]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
	if s := PortStreams("h", 1, 0, 1, ""); s[0].Replay != "" {
		t.Errorf("%v", s)
	}
}

// A stream with groups of an unknown kind reports that; one with only full attention does not.
func TestSparseGroups(t *testing.T) {
	e := newFakeEngine(t, 31)
	r := openReader(t, testOptions())
	r.follow(e.stream())
	e.publish(5)
	r.agrees(t, e)
	if r.Sparse(testSource.Endpoint) {
		t.Error("full attention alone")
	}
	r.streams[testSource].store(1, "of tomorrow", 5)
	if !r.Sparse(testSource.Endpoint) {
		t.Error("an unknown kind is not reported")
	}
}

// store has the stream take an event of a cache group.
func (s *subscriber) store(group int32, kind string, hash block.EngineHash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.m.work()
	w.batch.Events = append(w.batch.Events[:0], decode.Event{
		Kind: decode.BlockStored, Group: group, SpecKind: []byte(kind), BlockSize: 16, Window: 128,
		Hashes: []block.EngineHash{hash}, Tokens: make([]uint32, 16),
	})
	w.delta = block.Delta{}
	s.tr.Translate(&w.batch, &w.delta)
	s.count(&w.batch, indexer.ApplyStats{})
}

// A stream without full attention reports that, until an event has a group with full attention.
func TestNarrowGroups(t *testing.T) {
	e := newFakeEngine(t, 32)
	r := openReader(t, testOptions())
	r.follow(e.stream())
	e.publish(5)
	r.agrees(t, e)
	if r.Narrow(testSource.Endpoint) {
		t.Error("full attention alone")
	}
	s := r.streams[testSource]
	s.mu.Lock()
	s.tr.Clear(&block.Delta{})
	s.mu.Unlock()
	s.store(0, "sliding_window", 5)
	if !r.Narrow(testSource.Endpoint) || r.Sparse(testSource.Endpoint) {
		t.Error("a model with windows only is not reported")
	}
	s.store(1, "full_attention", 6)
	if r.Narrow(testSource.Endpoint) {
		t.Error("full attention has come")
	}
}
