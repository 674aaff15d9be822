package events

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/events/order"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// subscriber reads the stream of one source: connect, order, decode, translate, apply. One
// goroutine reads live batches; a second one exists during a replay. Both hold mu for each batch,
// so batches are applied one at a time and in order.
type subscriber struct {
	m      *Manager
	src    block.Source
	name   string
	at     Stream
	pod    string
	model  *Model
	log    *slog.Logger
	ctx    context.Context // ends with stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	order        *order.Order
	tr           *translate.Translator
	seen         translate.Stats // of tr, already counted
	counted      order.Counts    // of order, already counted
	connectedAt  time.Time
	conn         *zmtp.Conn // nil while there is none
	link         Link       // as last reported
	cancelReplay context.CancelFunc
	retry        *time.Timer // next Order.Timeout
	failed       int         // consecutive replays that failed or left suspect data
	batchTime    float64     // of the newest applied batch
	fresh        bool        // batchTime has not been published yet
	incarnation  uint64
	restarts     uint64 // restarts of order at the last SetIncarnation
	replaying    bool   // the current batch is from a replay
	wasRead      bool   // this connection has delivered a readable message
	unreadRow    int    // consecutive unreadable messages

	failure failure

	view view
}

// view is the state that others may read at any time.
type view struct {
	state         atomic.Uint32
	exactAt       atomic.Int64 // last time at which the stream was followed, ns
	downAt        atomic.Int64 // when a followed stream lost its connection, in ns; otherwise 0
	lastMessageAt atomic.Int64 // last message, ns
	lag           atomic.Int64 // ns
	behind        atomic.Uint64
	complete      atomic.Bool
	up            atomic.Bool
	// unreadable means that messages arrive but cannot be read.
	unreadable atomic.Bool
	sparse     atomic.Bool   // some cache group is not followed
	narrow     atomic.Bool   // no cache group has full attention
	answered   atomic.Uint64 // requests for a full report whose report has arrived
}

// endMarker is the sequence number that ends a replay.
const endMarker = ^uint64(0)

func newSubscriber(m *Manager, e *EndpointSource, at Stream) *subscriber {
	src := block.Source{Endpoint: e.ID, Rank: at.Rank}
	s := &subscriber{m: m, src: src, name: e.Name, at: at, pod: e.Pod, model: e.Model, order: order.New(at.Replay != "")}
	s.log = m.opt.Log.With("endpoint", e.Name, "rank", at.Rank)
	s.tr = translate.New(translate.Options{
		Source: src, Index: m.opt.Index, Hasher: m.opt.Hasher, SharedRemote: m.opt.SharedRemote,
		Model: e.Model.Name, Vocabulary: e.Model.Vocabulary, Canonical: e.Model.Canonical,
		Medium: e.Model.Medium, Adapter: e.Model.Adapter, Unit: e.Model.Unit,
	})
	s.ctx, s.cancel = context.WithCancel(m.ctx)
	s.view.state.Store(uint32(knowledge.Approximate))
	return s
}

// start prepares the index for the starting position of the stream, and starts reading.
func (s *subscriber) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	resumed := false
	if s.m.opt.Resume != nil {
		if p, ok := s.m.opt.Resume(s.src); ok && p.Seq > 0 {
			s.order.Resume(p.Seq-1, p.Sum)
			s.incarnation, resumed = p.Incarnation, true
		}
	}
	if n, _ := s.m.opt.Index.Digest(s.src); n > 0 && !resumed {
		w := s.m.work()
		w.delta.Ops = append(w.delta.Ops, block.Op{Kind: block.OpClear})
		s.m.opt.Index.Apply(s.src, &w.delta)
		s.m.done(w)
	}
	if _, ok := s.at.dialsIn(); ok {
		return
	}
	s.wg.Add(1)
	go s.run()
}

// stop ends the stream and waits for its goroutines.
func (s *subscriber) stop() {
	s.cancel()
	s.m.inbound.forget(s)
	s.mu.Lock()
	s.closed = true
	if s.retry != nil && s.retry.Stop() {
		s.wg.Done()
	}
	s.retry = nil
	s.mu.Unlock()
	s.wg.Wait()
}

// run reconnects until the stream is stopped.
func (s *subscriber) run() {
	defer s.wg.Done()
	pause := s.m.opt.BackoffMin
	for s.ctx.Err() == nil {
		began := time.Now()
		err := s.session()
		s.lost(err)
		if time.Since(began) > s.m.opt.BackoffMax {
			pause = s.m.opt.BackoffMin
		}
		if !sleep(s.ctx, pause/2+rand.N(pause/2)) {
			return
		}
		pause = min(2*pause, s.m.opt.BackoffMax)
	}
}

// sleep waits for d and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session runs one connection.
func (s *subscriber) session() error {
	conn, err := zmtp.Dial(s.ctx, s.at.Events, zmtp.Options{
		Socket: zmtp.SUB, Heartbeat: s.m.opt.Heartbeat, AlignPing: s.m.opt.alignPing, Handshake: s.m.opt.Handshake,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { _ = conn.Close() })()
	if err := conn.Subscribe(s.at.Topic); err != nil {
		return err
	}
	s.connected(conn)
	var m zmtp.Message
	for {
		if err := conn.Recv(&m); err != nil {
			return err
		}
		s.message(&m)
	}
}

func (s *subscriber) connected(conn *zmtp.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connectedAt, s.conn = time.Now(), conn
	s.m.metrics.connects.WithLabelValues(resultOK).Inc()
	s.log.Info("event stream connected", "events", s.at.Events)
	s.failure.connected()
	s.read()
	s.wasRead = false
	s.view.up.Store(true)
	s.linked(LinkUp)
	s.do(s.order.Connected())
}

// waits records that the engine has not connected yet.
func (s *subscriber) waits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notConnected(errNobody)
}

// lost records the end of a connection or of an attempt.
func (s *subscriber) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	if s.view.up.Swap(false) {
		if s.ctx.Err() == nil {
			s.log.Warn("event stream lost", "events", s.at.Events, "err", err)
			note(&s.failure.link, "event stream "+s.at.Events+" was lost", err)
		}
		s.order.Disconnected()
		s.stopReplay()
		s.linked(LinkDown)
	} else if s.ctx.Err() == nil {
		s.m.metrics.connects.WithLabelValues(resultFailed).Inc()
		s.notConnected(err)
	}
	s.show()
}

// notConnected logs the reason once per series of failed attempts. The caller holds s.mu.
func (s *subscriber) notConnected(err error) {
	level := slog.LevelDebug
	if s.failure.dials++; s.failure.dials == reportAfter {
		level = slog.LevelWarn
	}
	s.log.Log(s.ctx, level, "event stream not connected, the endpoint is approximate", "events", s.at.Events, "err", err)
	note(&s.failure.link, "event stream "+s.at.Events+" cannot be read", err)
}

// linked records and reports the connection state. The caller holds s.mu.
func (s *subscriber) linked(link Link) {
	if s.link == link {
		return
	}
	s.link = link
	if s.m.opt.OnLink != nil {
		s.m.opt.OnLink(s.src, link)
	}
}

// message handles one message of the live stream: topic, sequence, payload.
func (s *subscriber) message(m *zmtp.Message) {
	seq, payload, ok := parseBatch(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || seq == endMarker {
		s.m.metrics.malformed.WithLabelValues(whatMessage).Inc()
		s.unread(m)
		return
	}
	s.view.lastMessageAt.Store(s.m.opt.Now().UnixNano())
	s.read()
	s.do(s.order.Live(seq, payload))
}

// tolerated is the number of consecutive unreadable messages accepted on a connection that has
// delivered readable ones.
const tolerated = 8

// unread records an unreadable message. It is not a sign of life, because its content is unknown.
// The first one of a connection is logged. The caller holds mu.
func (s *subscriber) unread(m *zmtp.Message) {
	if s.unreadRow++; s.wasRead && s.unreadRow < tolerated || s.view.unreadable.Load() {
		return
	}
	why := fmt.Sprintf("unreadable: its publisher sends messages of %d frames without a sequence number; a topic, a sequence number of 8 bytes and a payload are expected", m.Len())
	s.failure.unreadable.Store(&why)
	s.view.unreadable.Store(true)
	level := slog.LevelDebug
	if !s.failure.unread {
		s.failure.unread, level = true, slog.LevelWarn
	}
	s.log.Log(s.ctx, level, "event messages cannot be read: no sequence number", "events", s.at.Events, "frames", m.Len())
}

// read records a readable message. The caller holds mu.
func (s *subscriber) read() {
	s.wasRead, s.unreadRow = true, 0
	if s.view.unreadable.Swap(false) {
		s.failure.unreadable.Store(nil)
	}
}

// parseBatch returns sequence number and payload: the last two frames, after an optional delimiter
// and topic.
func parseBatch(m *zmtp.Message) (seq uint64, payload []byte, ok bool) {
	n := m.Len()
	if n < 2 || n > 4 || len(m.Frame(n-2)) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(m.Frame(n - 2)), m.Frame(n - 1), true
}

// do executes the order's actions. The caller holds mu.
func (s *subscriber) do(actions []order.Action) {
	if s.closed {
		return
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case order.Apply:
			s.apply(a.Seq, a.Payload)
		case order.Clear:
			s.clear()
		case order.Replay:
			s.startReplay(a.Attempt, a.Seq)
		}
	}
	if (s.link == LinkUp || s.link == LinkBlind) && s.order.IsLive() {
		link := LinkCaught
		if s.order.Suspect() {
			link = LinkBlind
		}
		s.linked(link)
	}
	s.show()
	s.schedule()
}

// apply takes one batch through decoder, translator and index.
func (s *subscriber) apply(seq uint64, payload []byte) {
	w := s.m.work()
	defer s.m.done(w)
	err := w.batch.Decode(payload)
	if err != nil {
		s.m.metrics.malformed.WithLabelValues(whatBatch).Inc()
		level := slog.LevelDebug
		if !s.failure.malformed {
			s.failure.malformed, level = true, slog.LevelWarn
		}
		s.log.Log(s.ctx, level, "event batch malformed", "seq", seq, "bytes", len(payload), "err", err)
	}
	s.tr.Translate(&w.batch, &w.delta)
	var stats indexer.ApplyStats
	if len(w.delta.Ops) > 0 {
		stats = s.m.opt.Index.Apply(s.src, &w.delta)
	}
	for _, op := range w.delta.Ops {
		if op.Kind == block.OpClear {
			s.order.Cleared(seq)
			break
		}
	}
	if err != nil || w.batch.Malformed > 0 {
		s.order.MarkUnreadable(seq)
	}
	if !s.replaying { // replayed batches are old, but the data is not
		s.batchTime, s.fresh = w.batch.Time, true
	}
	parked := s.seen.Parked
	s.count(&w.batch, stats)
	paged := s.tr.Paged()
	s.publish(Update{
		First: seq, Last: seq, Delta: &w.delta, After: Position{Seq: seq + 1, Sum: order.Sum(payload)},
		Paged: paged || s.tr.Pieced(), Missed: paged && !s.order.Complete() && s.seen.Parked > parked,
	})
}

// clear removes the source's data.
func (s *subscriber) clear() {
	w := s.m.work()
	defer s.m.done(w)
	s.tr.Clear(&w.delta)
	s.m.opt.Index.Apply(s.src, &w.delta)
	if n := s.order.Counts().Restarts; n != s.restarts {
		s.restarts, s.incarnation = n, 0
		s.log.Info("engine restarted or lost its event history", "restarts", n)
		if s.m.opt.OnRestart != nil {
			s.m.opt.OnRestart(s.src, s.order.Wrapped())
		}
	}
	s.publish(Update{Reset: true, Delta: &w.delta})
}

func (s *subscriber) publish(u Update) {
	if s.m.opt.OnDelta != nil {
		u.Source, u.After.Incarnation = s.src, s.incarnation
		s.m.opt.OnDelta(u)
	}
}

// show publishes the state. The caller holds mu.
func (s *subscriber) show() {
	v, now := &s.view, s.m.opt.Now().UnixNano()
	state := s.order.State()
	was := knowledge.State(v.state.Swap(uint32(state)))
	if was.Followed() || state.Followed() {
		v.exactAt.Store(now)
	}
	if state.Followed() {
		s.failure.replay.Store(nil) // nothing is missing
	}
	s.failure.history.Store(!s.order.Replays() && s.order.IsLive() && s.order.Suspect())
	switch {
	case !s.order.Down():
		v.downAt.Store(0)
	case was.Followed():
		v.downAt.Store(now)
	}
	v.behind.Store(s.order.Lag())
	v.complete.Store(s.order.Complete())
	if s.batchTime > 0 && s.fresh {
		v.lag.Store(max(0, now-int64(s.batchTime*1e9)))
		s.fresh = false
	}
}

// knowledge returns the source's part of Manager.Knowledge.
func (s *subscriber) knowledge(now int64) Knowledge {
	v := &s.view
	k := Knowledge{
		State:    s.state(func() time.Time { return time.Unix(0, now) }),
		Complete: v.complete.Load(), Behind: v.behind.Load(), Lag: time.Duration(v.lag.Load()),
	}
	if exact := v.exactAt.Load(); !k.State.Followed() && exact > 0 {
		k.Lag = max(k.Lag, time.Duration(now-exact))
	}
	if heard := v.lastMessageAt.Load(); heard > 0 {
		k.Silent = time.Duration(max(0, now-heard))
	}
	return k
}

// state returns the state. It reads the clock only while the stream is down.
func (s *subscriber) state(now func() time.Time) knowledge.State {
	if s.view.unreadable.Load() {
		return knowledge.Unreadable
	}
	if down := s.view.downAt.Load(); down > 0 && now().UnixNano()-down < int64(s.m.opt.Grace) {
		return knowledge.CatchingUp
	}
	return knowledge.State(s.view.state.Load())
}

// position returns the position up to which the source has been followed.
func (s *subscriber) position() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Position{Incarnation: s.incarnation}
	if seq, sum, ok := s.order.Last(); ok {
		p.Seq, p.Sum = seq+1, sum
	}
	return p
}
