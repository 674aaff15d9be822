package filter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

var (
	testWay    = Way{"a", "b", "default", "llama"}
	testSecret = []byte("a secret of the federation")
)

// rig is an exporter's set with one source and the sink at the other end.
type rig struct {
	hot    *Hot
	source *Source
	sink   *Sink
	rng    *rand.Rand
}

func newRig(t testing.TB, most int) *rig {
	s := secretOf(t, string(testSecret))
	hot := NewHot(most)
	return &rig{
		hot: hot, source: NewSource(hot, s, testWay, 1, 100),
		sink: NewSink(s, testWay, 64<<20), rng: rand.New(rand.NewPCG(1, 2)),
	}
}

func (r *rig) keys(n int) []block.Key {
	out := make([]block.Key, n)
	for i := range out {
		out[i] = block.Key(r.rng.Uint64() | 1<<63)
	}
	return out
}

// sync requests parts until the sink is complete and returns the bytes received.
func (r *rig) sync(t testing.TB, most int) (bytes int) {
	t.Helper()
	for range 1 << 20 {
		if !r.sink.Behind(r.source.Head()) {
			return bytes
		}
		b := r.source.AppendPart(nil, r.sink.Position(), most)
		bytes += len(b)
		if _, err := r.sink.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("never in sync")
	return 0
}

// TestSync: the sink contains the hot blocks and not the evicted ones, by snapshot and by deltas,
// in parts of any size.
func TestSync(t *testing.T) {
	for _, most := range []int{MinPart, 10_000, MaxPart} {
		r := newRig(t, 20_000)
		first := r.keys(20_000)
		r.hot.Touch(first)
		snapshot := r.sync(t, most)
		wantHeld(t, r, first, true)
		second := r.keys(500)
		r.hot.Touch(second)
		delta := r.sync(t, most)
		wantHeld(t, r, second, true)
		if delta > snapshot/2 {
			t.Errorf("delta of 500 of 20,000 blocks has %d bytes, snapshot has %d", delta, snapshot)
		}
		r.hot.Touch(r.keys(60_000)) // replaces all earlier blocks
		r.sync(t, most)
		wantHeld(t, r, first, false)
		if r.sink.healed != 0 {
			t.Errorf("digests differed %d times", r.sink.healed)
		}
	}
}

func wantHeld(t *testing.T, r *rig, keys []block.Key, want bool) {
	t.Helper()
	wrong := 0
	for _, k := range keys {
		if r.sink.Filter().Has(k) != want {
			wrong++
		}
	}
	if wrong > len(keys)/200 { // false positives
		t.Errorf("%d of %d blocks: Has() is not %t", wrong, len(keys), want)
	}
}

// TestEqual: after a sync both ends have the same filter, regardless of lost, late or duplicate
// parts.
func TestEqual(t *testing.T) {
	r := newRig(t, 5_000)
	var late [][]byte
	for range 400 {
		if r.rng.IntN(3) == 0 {
			r.hot.Touch(r.keys(r.rng.IntN(200)))
		}
		if r.rng.IntN(60) == 0 {
			r.source.Rotate(r.rng.Uint64())
		}
		b := r.source.AppendPart(nil, r.sink.Position(), MinPart)
		switch r.rng.IntN(4) {
		case 0: // lost
		case 1:
			late = append(late, b)
		default:
			if _, err := r.sink.Apply(b); err != nil {
				t.Fatal(err)
			}
		}
		if len(late) > 0 && r.rng.IntN(3) == 0 {
			if _, err := r.sink.Apply(late[r.rng.IntN(len(late))]); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.sync(t, MaxPart)
	wantEqual(t, r)
	if r.sink.healed != 0 {
		t.Errorf("digests differed %d times", r.sink.healed)
	}
}

func wantEqual(t *testing.T, r *rig) {
	t.Helper()
	want, got := r.source.filter, r.sink.Filter()
	if want.key != got.key || len(want.words) != len(got.words) {
		t.Fatalf("key or size differ: %d and %d words", len(want.words), len(got.words))
	}
	for i := range want.words {
		if want.words[i] != got.words[i] {
			t.Fatalf("word %d = %[3]x at the sink, want %[2]x", i, want.words[i], got.words[i])
		}
	}
}

// TestDigest: a row that differs from the source's is detected with the next delta and repaired.
func TestDigest(t *testing.T) {
	r := newRig(t, 5_000)
	r.hot.Touch(r.keys(3_000))
	r.sync(t, MaxPart)
	r.sink.digest ^= r.sink.filter.rowDigest(7)
	r.sink.filter.words[14] ^= 0x55
	r.sink.digest ^= r.sink.filter.rowDigest(7)
	r.hot.Touch(r.keys(1))
	r.sync(t, MaxPart)
	wantEqual(t, r)
	if r.sink.healed != 1 {
		t.Errorf("healed = %d, want 1", r.sink.healed)
	}
}

// TestKeepsOld: while a filter of another epoch is loading, the previous one answers.
func TestKeepsOld(t *testing.T) {
	r := newRig(t, 5_000)
	keys := r.keys(4_000)
	r.hot.Touch(keys)
	r.sync(t, MaxPart)
	r.source.Rotate(2)
	if _, err := r.sink.Apply(r.source.AppendPart(nil, r.sink.Position(), MinPart)); err != nil {
		t.Fatal(err)
	}
	if _, whole := r.sink.Complete(); whole {
		t.Error("filter is complete after one part")
	}
	wantHeld(t, r, keys, true)
	r.sync(t, MinPart)
	wantHeld(t, r, keys, true)
	wantEqual(t, r)
}

// TestOtherPair: a filter is meaningless to a cluster it was not made for.
func TestOtherPair(t *testing.T) {
	r := newRig(t, 5_000)
	keys := r.keys(5_000)
	r.hot.Touch(keys)
	r.sync(t, MaxPart)
	other := NewSink(secretOf(t, string(testSecret)), Way{"a", "c", "default", "llama"}, 64<<20)
	stolen := *r.sink.Filter()
	stolen.key = other.key(1)
	found := 0
	for _, k := range keys {
		if stolen.Has(k) {
			found++
		}
	}
	if found > len(keys)/100 {
		t.Errorf("%d of %d blocks found with the key of another pair", found, len(keys))
	}
}

// TestRun finds the end of a prefix at any length.
func TestRun(t *testing.T) {
	r := newRig(t, 5_000)
	keys := r.keys(1_000)
	for _, n := range []int{0, 1, 2, 3, 63, 64, 65, 500, 999, 1_000} {
		r.hot = NewHot(5_000)
		r.source = NewSource(r.hot, secretOf(t, string(testSecret)), testWay, 1, uint64(1000+n))
		r.sink = NewSink(secretOf(t, string(testSecret)), testWay, 64<<20)
		r.hot.Touch(keys[:n])
		r.sync(t, MaxPart)
		if got := r.sink.Filter().Run(keys); got != n {
			t.Errorf("Run() with %d of %d keys present = %d", n, len(keys), got)
		}
	}
}

// TestFilterAllocs: a lookup does not allocate.
func TestFilterAllocs(t *testing.T) {
	r := newRig(t, 5_000)
	keys := r.keys(1_000)
	r.hot.Touch(keys)
	r.sync(t, MaxPart)
	f := r.sink.Filter()
	if n := testing.AllocsPerRun(100, func() { f.Run(keys); f.Has(keys[0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestHotLRU: blocks that are requested again stay, others are evicted, and the limit holds.
func TestHotLRU(t *testing.T) {
	r := newRig(t, 1_000)
	kept := r.keys(300)
	for range 50 {
		if r.hot.Touch(kept); r.hot.Len() > 1_000 {
			t.Fatalf("%d blocks, limit 1,000", r.hot.Len())
		}
		r.hot.Touch(r.keys(300))
	}
	if known := r.hot.Touch(kept); known != len(kept) {
		t.Errorf("%d of %d frequently requested blocks are kept", known, len(kept))
	}
	r.hot.SetMost(10)
	if n := r.hot.Len(); n != 10 {
		t.Errorf("%d blocks after the limit was lowered to 10", n)
	}
	r.hot.SetMost(1_000)
	if n := int(r.source.Head().Blocks + r.source.Head().Omitted); n != r.hot.Len() {
		t.Errorf("the filter has %d blocks, the set %d", n, r.hot.Len())
	}
}

// TestStale: a set as large as the engines' caches contains few evicted blocks and all recent
// prompts. A larger set would keep everything that was ever served.
func TestStale(t *testing.T) {
	const cache, blocks = 6400, 32 // blocks in the engines' caches, and per prompt
	stale := func(most int) (gone, missed float64) {
		r := newRig(t, most)
		prompts := make([][]block.Key, 1000)
		for i := range prompts {
			prompts[i] = r.keys(blocks)
		}
		var order []int // prompts in the caches, least recently used first
		for range 20_000 {
			i := int(float64(len(prompts)) * math.Pow(r.rng.Float64(), 3))
			order = append(slices.DeleteFunc(order, func(o int) bool { return o == i }), i)
			order = order[max(len(order)-cache/blocks, 0):]
			r.hot.Touch(prompts[i])
		}
		told, cached := 0, 0
		for i, keys := range prompts {
			held := slices.Contains(order, i)
			if held {
				cached++
			}
			switch known := r.hot.index[r.hot.find(keys[0])] != 0; {
			case known && !held:
				gone++
				told++
			case known:
				told++
			case held:
				missed++
			}
		}
		return gone / float64(max(told, 1)), missed / float64(cached)
	}
	gone, missed := stale(cache)
	before, _ := stale(MaxHot)
	t.Logf("not held of what is told: %.1f%% (%.1f%% without a bound); held and not told: %.1f%%", 100*gone, 100*before, 100*missed)
	if gone > .25 || missed > .25 {
		t.Errorf("%.1f%% of the filter's blocks are evicted, %.1f%% of cached blocks are not in the filter", 100*gone, 100*missed)
	}
	if before < .5 {
		t.Errorf("without a limit only %.1f%% are evicted: the test proves nothing", 100*before)
	}
}

// TestSteps: the filter of a large set is built in steps while blocks come and go. The previous
// filter is sent until it is complete, and then it equals the set.
func TestSteps(t *testing.T) {
	r := newRig(t, 3*buildStep)
	keys := r.keys(3 * buildStep)
	r.hot.Touch(keys)
	for r.source.next != nil {
		r.source.Rotate(1)
	}
	r.sync(t, MaxPart)
	before := r.source.Head()
	r.source.Rotate(2)
	steps := 0
	for ; r.source.next != nil; steps++ {
		if h := r.source.Head(); h.Epoch != before.Epoch || h.Rotation != 1 {
			t.Fatalf("incomplete filter was announced: %+v", h)
		}
		fresh := r.keys(5_000)
		r.hot.Touch(fresh)
		keys = append(keys, fresh...)
		r.source.Rotate(2)
	}
	if steps < 2 {
		t.Fatalf("%d steps", steps)
	}
	r.sync(t, MaxPart)
	wantEqual(t, r)
	h := r.source.Head()
	if h.Rotation != 2 || int(h.Blocks+h.Omitted) != r.hot.Len() {
		t.Errorf("%+v of a set of %d", h, r.hot.Len())
	}
	held := 0
	for _, k := range keys[len(keys)-3*buildStep:] {
		if r.sink.Filter().Has(k) {
			held++
		}
	}
	if held < 3*buildStep*99/100 {
		t.Errorf("%d of %d blocks are in the filter", held, 3*buildStep)
	}
	r.source.Rotate(3)
	r.hot.SetMost(buildStep)
	for r.source.next != nil {
		r.source.Rotate(3)
	}
	if h := r.source.Head(); int(h.Blocks+h.Omitted) != r.hot.Len() || r.hot.Len() != buildStep {
		t.Errorf("%+v of a set of %d", h, r.hot.Len())
	}
}

// TestTooLarge: a filter above the accepted size is not started.
func TestTooLarge(t *testing.T) {
	r := newRig(t, 50_000)
	r.hot.Touch(r.keys(50_000))
	r.sink.most = 50_000
	if _, err := r.sink.Apply(r.source.AppendPart(nil, r.sink.Position(), MinPart)); err == nil || r.sink.Filter() != nil {
		t.Errorf("error %v, filter %v", err, r.sink.Filter())
	}
}

// FuzzPart: for any input, a sink neither panics nor writes out of bounds, and each accepted part
// advances it.
func FuzzPart(f *testing.F) {
	r := newRig(f, 500)
	r.hot.Touch(r.keys(400))
	f.Add(r.source.AppendPart(nil, Position{}, MinPart))
	f.Add(r.source.AppendPart(nil, Position{}, MaxPart))
	r.hot.Touch(r.keys(5))
	f.Add(r.source.AppendPart(nil, Position{Epoch: r.source.epoch, Since: 1}, MaxPart))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		sink := NewSink(secretOf(t, string(testSecret)), testWay, 1<<20)
		for range 2 {
			before := sink.Position()
			moved, err := sink.Apply(b)
			if err != nil && moved {
				t.Error("position moved despite an error")
			}
			if !moved && before.Epoch != 0 && before != sink.Position() {
				t.Error("position moved, but moved is false")
			}
			if sink.filter.Bytes() > 1<<20 {
				t.Error("filter exceeds the accepted size")
			}
		}
	})
}

// TestClose: a closed source is detached from its set.
func TestClose(t *testing.T) {
	r := newRig(t, 10)
	if len(r.hot.sources) != 1 {
		t.Fatalf("%d sources", len(r.hot.sources))
	}
	if r.source.Close(); len(r.hot.sources) != 0 {
		t.Errorf("%d sources left", len(r.hot.sources))
	}
}

// TestFollows: a source with rare asks equals the set, and equals a source with continuous asks,
// while thousands of blocks are added and removed and the set grows and shrinks.
func TestFollows(t *testing.T) {
	r := newRig(t, 3_000)
	s := secretOf(t, string(testSecret))
	often := NewSource(r.hot, s, Way{"a", "c", "default", "llama"}, 1, 200)
	for i := range 300 {
		r.hot.Touch(r.keys(r.rng.IntN(120)))
		often.Rotate(1)
		often.Head()
		switch i {
		case 100:
			r.hot.SetMost(20_000)
		case 200:
			r.hot.SetMost(700)
		}
		if i%60 != 59 {
			continue
		}
		for range 50 { // until a rebuilt filter is complete
			r.source.Rotate(1)
			often.Rotate(1)
		}
		for _, x := range []*Source{r.source, often} {
			h := x.Head()
			if n := int(h.Blocks + h.Omitted); n != r.hot.Len() {
				t.Errorf("step %d: filter has %d blocks, set has %d", i, n, r.hot.Len())
			}
			missing := 0
			for _, e := range r.hot.ring {
				if !x.filter.Has(e.key) {
					missing++
				}
			}
			if missing != int(h.Omitted) {
				t.Errorf("step %d: %d of %d blocks are missing, Omitted = %d", i, missing, len(r.hot.ring), h.Omitted)
			}
			fresh := newTable(x.filter.key, int(x.filter.n))
			for _, e := range r.hot.ring {
				fresh.add(e.key)
			}
			if d := fresh.blocks - x.blocks; d < -3 || d > 3 { // the order determines which blocks are omitted
				t.Errorf("step %d: %d blocks added, want %d as in a rebuilt filter", i, x.blocks, fresh.blocks)
			}
		}
		if len(r.hot.changes) > maxChanges+1 {
			t.Errorf("%d changes kept", len(r.hot.changes))
		}
	}
}
