package order

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestOrder runs the scripts of testdata: a session with one engine.
//
//	new [replay]           an order, with a replay socket or without
//	connected              the stream is connected
//	live SEQ PAYLOAD ...   live batches
//	reply SEQ PAYLOAD ...  batches of the current replay
//	end | fail             the current replay ends, or breaks off
//	timeout                time for a retry
//	disconnected           the stream is disconnected
//	cleared SEQ | distrust SEQ | vouch | resume SEQ PAYLOAD
//
// The output lists actions, then the state.
func TestOrder(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var o *Order
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			if td.Cmd == "new" {
				o = New(td.HasArg("replay"))
				return ""
			}
			var out strings.Builder
			for _, line := range strings.Split(td.Cmd+" "+args(td), "\n") {
				for _, a := range orderStep(t, o, strings.Fields(line)) {
					out.WriteString(a)
				}
			}
			out.WriteString(orderState(o))
			return out.String()
		})
	})
}

func args(td *datadriven.TestData) string {
	var words []string
	for _, a := range td.CmdArgs {
		words = append(words, a.Key)
	}
	return strings.Join(words, " ")
}

func orderStep(t *testing.T, o *Order, words []string) (out []string) {
	t.Helper()
	each := func(f func(seq uint64, payload []byte) []Action) {
		for i := 1; i+1 < len(words); i += 2 {
			seq, err := strconv.ParseUint(words[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, printActions(f(seq, []byte(words[i+1])))...)
		}
	}
	seq := func() uint64 {
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch words[0] {
	case "connected":
		return printActions(o.Connected())
	case "disconnected":
		o.Disconnected()
	case "live":
		each(o.Live)
	case "reply":
		attempt := o.attempt
		each(func(seq uint64, payload []byte) []Action { return o.Replayed(attempt, seq, payload) })
	case "end":
		return printActions(o.ReplayEnded(o.attempt))
	case "fail":
		return printActions(o.ReplayFailed(o.attempt))
	case "timeout":
		return printActions(o.Timeout())
	case "cleared":
		o.Cleared(seq())
	case "distrust":
		o.MarkUnreadable(seq())
	case "vouch":
		o.Confirm()
	case "resume":
		each(func(s uint64, payload []byte) []Action { o.Resume(s, Sum(payload)); return nil })
	default:
		t.Fatalf("unknown command %q", words[0])
	}
	return out
}

func printActions(actions []Action) (out []string) {
	for _, a := range actions {
		switch a.Kind {
		case Apply:
			out = append(out, fmt.Sprintf("apply %d %s\n", a.Seq, a.Payload))
		case Clear:
			out = append(out, "clear\n")
		case Replay:
			out = append(out, fmt.Sprintf("replay from %d\n", a.Seq))
		}
	}
	return out
}

func orderState(o *Order) string {
	s := o.State().String()
	if o.have {
		s += fmt.Sprintf(", last %d", o.last)
	}
	if o.have && o.base == 0 {
		s += ", complete"
	}
	if n := o.Lag(); n > 0 {
		s += fmt.Sprintf(", %d behind", n)
	}
	if o.counts.Lost > 0 {
		s += fmt.Sprintf(", %d lost", o.counts.Lost)
	}
	return s + "\n"
}

// engine is an engine's log, with a ring of its latest batches, and a lossy
// network around it.
type engine struct {
	life, next int
	ring       int
	log        []string // of this life
}

func (e *engine) publish() (uint64, []byte) {
	payload := fmt.Sprintf("life%d-%d", e.life, e.next)
	e.log = append(e.log, payload)
	e.next++
	return uint64(e.next - 1), []byte(payload)
}

func (e *engine) oldest() int { return max(0, e.next-e.ring) }

// TestOrderLaw drives an order with random losses, reconnects, restarts with sequence numbers ahead
// of the old ones, ring wraps and lossy replays. Whenever its state is exact and no message is in
// transit, the batches applied since the last clear are a complete suffix of the log of the
// engine's current incarnation.
func TestOrderLaw(t *testing.T) {
	for seed := range int64(400) {
		rng := rand.New(rand.NewSource(seed))
		w := &orderWorld{t: t, rng: rng, o: New(true), e: engine{ring: 5 + rng.Intn(40)}}
		for range 300 {
			w.step()
			if w.o.State().Followed() {
				w.contiguous(seed)
			}
		}
		w.quiesce()
		if !w.o.State().Followed() || w.o.mayBeWrong {
			t.Fatalf("seed %d: %s after the faults have ended", seed, w.o.State())
		}
		w.check(seed)
	}
}

// TestUnheardLaw publishes batches that no live stream delivers, at random moments after a connection
// was made, and nothing after them. Checks find them.
func TestUnheardLaw(t *testing.T) {
	for seed := range int64(200) {
		rng := rand.New(rand.NewSource(seed))
		w := &orderWorld{t: t, rng: rng, o: New(true), e: engine{ring: 40}, faultless: true}
		for range 1 + rng.Intn(4) {
			for range rng.Intn(3) {
				w.e.publish()
			}
			w.up = true
			w.do(w.o.Connected())
			for range rng.Intn(4) {
				w.serveReplay()
			}
			for range rng.Intn(3) {
				w.e.publish() // not heard
			}
			if rng.Intn(3) == 0 {
				w.do(w.o.Live(w.e.publish()))
			}
			for w.o.NeedsTimeout() || w.replay {
				w.do(w.o.Timeout())
				w.serveReplay()
			}
			if w.e.next > 0 {
				w.check(seed)
			}
			if s := w.o.State(); !s.Followed() {
				t.Fatalf("seed %d: %v", seed, s)
			}
			w.o.Disconnected()
		}
	}
}

type orderWorld struct {
	t         *testing.T
	rng       *rand.Rand
	o         *Order
	e         engine
	up        bool
	replay    bool // a replay is running
	attempt   uint32
	from      uint64
	applied   []string
	seqs      []uint64
	faultless bool
}

func (w *orderWorld) do(actions []Action) {
	for _, a := range actions {
		switch a.Kind {
		case Clear:
			w.applied, w.seqs = nil, nil
		case Apply:
			w.applied, w.seqs = append(w.applied, string(a.Payload)), append(w.seqs, a.Seq)
		case Replay:
			w.replay, w.attempt, w.from = true, a.Attempt, a.Seq
		}
	}
}

func (w *orderWorld) chance(percent int) bool { return !w.faultless && w.rng.Intn(100) < percent }

func (w *orderWorld) step() {
	switch n := w.rng.Intn(100); {
	case !w.up:
		w.up = true
		w.do(w.o.Connected())
	case n < 60:
		seq, payload := w.e.publish()
		if w.chance(4) {
			return // lost on the way
		}
		w.do(w.o.Live(seq, payload))
		if w.chance(3) {
			w.do(w.o.Live(seq, payload))
		}
	case n < 85:
		w.serveReplay()
	case n < 92:
		w.do(w.o.Timeout())
	case w.chance(40):
		w.up, w.replay = false, false
		w.o.Disconnected()
		if w.chance(50) { // the engine is another one when we are back, perhaps further than before
			w.e = engine{life: w.e.life + 1, ring: w.e.ring}
			for range w.rng.Intn(2*len(w.seqs) + 2) {
				w.e.publish()
			}
		}
	}
}

// serveReplay answers the requested replay, with losses; live batches arrive in between.
func (w *orderWorld) serveReplay() {
	if !w.replay {
		return
	}
	w.replay = false
	attempt := w.attempt
	if w.chance(15) {
		w.do(w.o.ReplayFailed(attempt))
		return
	}
	end := w.e.next
	for i := max(int(w.from), w.e.oldest()); i < end; i++ {
		if w.chance(5) && i > int(w.from) {
			continue
		}
		if w.chance(1) {
			w.do(w.o.ReplayFailed(attempt))
			return
		}
		w.do(w.o.Replayed(attempt, uint64(i), []byte(w.e.log[i])))
		if w.rng.Intn(10) == 0 && !w.faultless {
			seq, payload := w.e.publish()
			w.do(w.o.Live(seq, payload))
		}
		if w.attempt != attempt {
			return // the order has requested another replay by now
		}
	}
	w.do(w.o.ReplayEnded(attempt))
}

// quiesce ends the faults and lets the order finish.
func (w *orderWorld) quiesce() {
	w.faultless = true
	if !w.up {
		w.up = true
		w.do(w.o.Connected())
	}
	seq, payload := w.e.publish()
	w.do(w.o.Live(seq, payload))
	for range 20 {
		w.serveReplay()
		w.do(w.o.Timeout())
	}
}

func (w *orderWorld) check(seed int64) {
	if len(w.seqs) == 0 || int(w.seqs[len(w.seqs)-1]) != w.e.next-1 {
		w.t.Fatalf("seed %d: applied up to %v of %d", seed, w.seqs, w.e.next)
	}
	w.contiguous(seed)
}

// contiguous checks that the applied batches are a part of the log of the current incarnation.
func (w *orderWorld) contiguous(seed int64) {
	w.t.Helper()
	for i, seq := range w.seqs {
		if i > 0 && seq != w.seqs[i-1]+1 {
			w.t.Fatalf("seed %d: %d after %d", seed, seq, w.seqs[i-1])
		}
		if w.applied[i] != w.e.log[seq] {
			w.t.Fatalf("seed %d: batch %d is %s, want %s", seed, seq, w.applied[i], w.e.log[seq])
		}
	}
}

func TestHeldIsBounded(t *testing.T) {
	var h held
	payload := make([]byte, 10_000)
	for i := range uint64(2 * heldBatches) {
		h.addLive(i, payload)
	}
	if h.bytes > heldBytes || len(h.list) > heldBatches {
		t.Errorf("%d batches, %d bytes", len(h.list), h.bytes)
	}
	if newest, _ := h.newest(); newest != 2*heldBatches-1 {
		t.Errorf("newest is %d", newest)
	}
	n := len(h.list)
	h.addReplayed(1, payload)
	if len(h.list) != n {
		t.Error("a replayed batch found room in a full buffer")
	}
	h.clear()
	for _, seq := range []uint64{5, 3, 9, 3, 7} {
		h.addLive(seq, []byte{byte(seq)})
	}
	for _, want := range []uint64{3, 5, 7, 9} {
		if b := h.pop(); b.seq != want || b.payload[0] != byte(want) {
			t.Errorf("popped %d, want %d", b.seq, want)
		}
	}
	if h.bytes != 0 {
		t.Errorf("%d bytes left", h.bytes)
	}
}
