package sandbox

import (
	"crypto/sha256"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
)

var t0 = time.Unix(1_700_000_000, 0)

// numbers is a source whose endpoints have one number each.
type numbers []float64

func (numbers) WriteRequest(*Writer)                  {}
func (s numbers) WriteEndpoint(k int, w *Writer)      { w.Number(s[k]) }
func (s numbers) score(m *Module) (Reason, []float64) { return s.scoreAt(m, t0) }

func (s numbers) scoreAt(m *Module, now time.Time) (Reason, []float64) {
	scores := make([]float64, len(s))
	return m.Score(now, s, scores), scores
}

const oneFact = "load.waiting"

func options(body []byte) Options {
	return Options{Code: wasmkit.Module(wasmkit.Options{Facts: []string{oneFact}, Body: body}), Memory: 2 << 20, Steps: 200_000}
}

func open(t testing.TB, o Options) *Module {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	m.SetShape(0, 1)
	return m
}

func TestScore(t *testing.T) {
	m := open(t, options(wasmkit.Copy(false, 1)))
	if got := m.Facts(); !slices.Equal(got, []string{oneFact}) {
		t.Errorf("facts %q", got)
	}
	for _, n := range []int{1, 3, 1000, 2} {
		in := make(numbers, n)
		for k := range in {
			in[k] = float64(k) / 7
		}
		if reason, got := in.score(m); reason != OK || !slices.Equal(got, in) {
			t.Errorf("%d endpoints: %v, scores %v", n, reason, got[:min(n, 5)])
		}
	}
	if s := m.Stats(); s.Calls != 4 || s.Failed[OK] != 4 || s.Last != nil {
		t.Errorf("stats %+v", s)
	}
}

func TestFilter(t *testing.T) {
	o := Options{Code: wasmkit.Module(wasmkit.Options{Filter: true, Facts: []string{oneFact}, Body: wasmkit.Copy(true, 1)}), Filter: true, Memory: 2 << 20, Steps: 200_000}
	m := open(t, o)
	got := make([]byte, 3)
	if reason := m.Filter(t0, numbers{1, 0, .7}, got); reason != OK || !slices.Equal(got, []byte{Keep, Drop, Keep}) {
		t.Errorf("%v, verdicts %v", reason, got)
	}
	o.Code = wasmkit.Module(wasmkit.Options{Filter: true, Facts: []string{oneFact}, Body: wasmkit.Nothing})
	m = open(t, o)
	if reason := m.Filter(t0, numbers{1, 0, .7}, got); reason != Result || !slices.Equal(got, []byte{Unknown, Unknown, Unknown}) {
		t.Errorf("without results: %v, verdicts %v", reason, got)
	}
}

// TestFaults: a call with a fault returns its reason and no scores, within the limit of instructions.
// The next call gets a new instance.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		body    []byte
		reason  Reason
		message string
	}{
		"a loop without end":     {wasmkit.Spin, Steps, "more instructions than its limit"},
		"recursion without end":  {wasmkit.Recurse, Steps, "more instructions"},
		"forks without end":      {wasmkit.Fork, Steps, "more instructions"},
		"growth without end":     {wasmkit.Grow, Steps, "more instructions"},
		"large fills":            {wasmkit.Fill, Steps, "more instructions"},
		"unreachable":            {wasmkit.Trap, Trap, "unreachable"},
		"an access out of range": {wasmkit.Outside, Trap, "out of bounds memory access"},
		"an error":               {wasmkit.Refuse, Refused, "it returned 7"},
		"no results":             {wasmkit.Nothing, Result, "3 of 3 results are missing"},
		"too few results":        {wasmkit.Scores(1, 1), Result, "1 of 3 results are missing"},
		"NaN":                    {wasmkit.Scores(math.NaN(), math.NaN(), math.NaN()), Result, "3 of 3"},
		"infinity":               {wasmkit.Scores(math.Inf(-1), math.Inf(-1), math.Inf(-1)), Result, "3 of 3"},
	} {
		m := open(t, options(c.body))
		for call := range 2 {
			reason, scores := numbers{1, 2, 3}.score(m)
			for k, s := range scores {
				if valid := name == "too few results" && k < 2; math.IsNaN(s) == valid {
					t.Errorf("%s: scores %v", name, scores)
				}
			}
			if last := m.Stats().Last; reason != c.reason || last == nil || last.Reason != reason || !strings.Contains(last.Message, c.message) {
				t.Errorf("%s, call %d: %v, %+v, want %v with %q", name, call, reason, last, c.reason, c.message)
			}
		}
		if kept := m.slots[0].instance != nil; kept != (c.reason == Result) {
			t.Errorf("%s: instance kept: %v", name, kept)
		}
		if s := m.Stats(); s.Failed[c.reason] != 2 || s.Calls != 2 || s.Failed[OK] != 0 {
			t.Errorf("%s: stats %+v", name, s)
		}
	}
}

// TestPause: after five failures in a row calls pause, one call after the pause decides whether they
// go on, and pauses become longer up to a limit. A success ends them.
func TestPause(t *testing.T) {
	// The module fails if the first endpoint's number is 1: it divides by zero.
	body := append([]byte{0x41, 1, 0x20, 1, 0x2b, 3, 0, 0xaa, 0x41, 1, 0x6b, 0x6d, 0x1a}, wasmkit.Copy(false, 1)...)
	m := open(t, options(body))
	now := t0
	f := func(in float64, want Reason) {
		t.Helper()
		if got, _ := (numbers{in}).scoreAt(m, now); got != want {
			t.Fatalf("after %v: %v, want %v", now.Sub(t0), got, want)
		}
	}
	for range failuresInRow - 1 {
		f(1, Trap)
	}
	f(5, OK)
	for range failuresInRow {
		f(1, Trap)
	}
	for _, seconds := range []int64{1, 2, 4, 8, 16, 30, 30} {
		now = time.Unix(now.Unix()+seconds, -1)
		f(5, Paused)
		now = now.Add(time.Nanosecond)
		f(1, Trap)
		f(5, Paused)
	}
	now = now.Add(longestPause)
	f(5, OK)
	f(5, OK)
	if !m.Stats().Paused.IsZero() {
		t.Error("a pause goes on after a success")
	}
	for range failuresInRow {
		f(1, Trap)
	}
	now = now.Add(firstPause) // the next pause is as short as the first one
	if !m.admit(now) || m.admit(now) {
		t.Error("after a pause, not one call is admitted")
	}
	now = now.Add(firstPause)
	f(5, OK)
	f(1, Trap)
	f(5, OK)
}

// TestCost: a call costs at least the instructions that run, whichever way they are reached, and memory
// operations cost by their size.
func TestCost(t *testing.T) {
	code := slices.Repeat([]byte{0x41, 0, 0x1a}, 25) // 50 instructions
	thousand := func(body ...byte) []byte {
		loop := append([]byte{0x03, 0x40}, body...)
		return append(loop, 0x20, 4, 0x41, 1, 0x6a, 0x22, 4, 0x41, 0xe8, 7, 0x48, 0x0d, 0, 0x0b, 0x41, 0)
	}
	for name, c := range map[string]struct {
		body  []byte
		least int64
	}{
		"code in a loop":               {thousand(code...), 50_000},
		"code after a loop in a block": {thousand(append([]byte{0x02, 0x40, 0x0c, 0, 0x03, 0x40, 0x0b, 0x0b}, code...)...), 50_000},
		"code of an alternative":       {thousand(append(append(append([]byte{0x41, 0, 0x04, 0x40, 0x03, 0x40, 0x0b}, code...), 0x05), append(code, 0x0b)...)...), 50_000},
		"code after a long block":      {thousand(append(append(append([]byte{0x02, 0x40, 0x0c, 0}, slices.Repeat(code, 3)...), 0x0b), code...)...), 50_000},
		"calls":                        {thousand(0x10, 1, 0x1a), 64_000},
		"a fill of 960 KiB":            {[]byte{0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 0x3c, 0xfc, 11, 0, 0x41, 0}, 61_440},
		"a copy of 960 KiB":            {[]byte{0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 0x3c, 0xfc, 10, 0, 0, 0x41, 0}, 61_440},
		"a page of memory":             {[]byte{0x41, 1, 0x40, 0, 0x1a, 0x41, 0}, 131_072},
	} {
		o := options(c.body)
		o.Steps = 1_000_000
		m := open(t, o)
		if reason, _ := (numbers{1}).score(m); reason != Result && reason != OK {
			t.Errorf("%s: %v, %+v", name, reason, m.Stats().Last)
			continue
		}
		if spent := m.limit - int64(m.slots[0].instance.steps.Get()); spent < c.least || spent > 5*c.least {
			t.Errorf("%s: %d steps, want at least %d, and not many more", name, spent, c.least)
		}
	}
}

// TestAreas: an area that the module must not return is a failure, not a write to it.
func TestAreas(t *testing.T) {
	for name, heap := range map[string]int32{"not aligned": 32<<10 + 4, "outside": 1<<20 - 8, "beyond": -8} {
		m := open(t, Options{Code: wasmkit.Module(wasmkit.Options{Body: wasmkit.Nothing, Heap: heap}), Memory: 2 << 20, Steps: 200_000})
		reason, _ := (numbers{1, 2}).score(m)
		if last := m.Stats().Last; reason != Trap || !strings.Contains(last.Message, "which is not aligned to 8 or not in its memory") {
			t.Errorf("%s: %v, %+v", name, reason, last)
		}
	}
}

// TestConcurrentCalls: every call has an instance of its own. Calls that find none are counted.
func TestConcurrentCalls(t *testing.T) {
	m := open(t, options(wasmkit.Copy(false, 1)))
	var calls sync.WaitGroup
	for g := range 8 * runtime.GOMAXPROCS(0) {
		calls.Go(func() {
			for i := range 200 {
				in := numbers{float64(g), float64(i), float64(g + i)}
				reason, got := in.score(m)
				if reason != Busy && (reason != OK || !slices.Equal(got, in)) {
					t.Errorf("%v: %v, scores %v", in, reason, got)
				}
			}
		})
	}
	calls.Wait()
	if s := m.Stats(); s.Failed[OK] == 0 || s.Failed[OK]+s.Failed[Busy] != uint64(8*runtime.GOMAXPROCS(0)*200) {
		t.Errorf("stats %+v", s)
	}
	for k := range m.slots {
		m.slots[k].busy.Store(true)
	}
	if reason, scores := (numbers{1}).score(m); reason != Busy || !math.IsNaN(scores[0]) {
		t.Errorf("all instances in use: %v, scores %v", reason, scores)
	}
}

// TestOpenErrors: a module that cannot be used is refused with the reason.
func TestOpenErrors(t *testing.T) {
	good := wasmkit.Options{Facts: []string{oneFact}, Body: wasmkit.Copy(false, 1)}
	with := func(change func(*wasmkit.Options)) []byte {
		o := good
		change(&o)
		return wasmkit.Module(o)
	}
	for want, o := range map[string]Options{
		"not a WebAssembly module": {Code: []byte("#!/bin/sh")},
		"cut off or damaged":       {Code: wasmkit.Module(good)[:100]},
		"does not export the function grapevine_v1_filter; it exports grapevine_v1_alloc, grapevine_v1_facts, grapevine_v1_score": {Code: wasmkit.Module(good), Filter: true},
		"imports env.print: plugins may import functions of wasi_snapshot_preview1 only":                                          {Code: with(func(o *wasmkit.Options) { o.Import = "env.print" })},
		"starts with 16384 KiB of memory, the limit is 2048 KiB":                                                                  {Code: with(func(o *wasmkit.Options) { o.Pages = 256 })},
		"takes no config: it does not export grapevine_v1_start":                                                                  {Code: wasmkit.Module(good), Config: "x"},
		"refuses its config: no such tier":                                                                                        {Code: with(func(o *wasmkit.Options) { o.Start, o.Text = wasmkit.Int(wasmkit.TextAt), "no such tier" }), Config: "x"},
		"does not start: wasm error: unreachable":                                                                                 {Code: with(func(o *wasmkit.Options) { o.Start = wasmkit.Trap })},
		"does not start: it needs more instructions":                                                                              {Code: with(func(o *wasmkit.Options) { o.Start = wasmkit.Spin })},
		"returns a text outside of its memory":                                                                                    {Code: with(func(o *wasmkit.Options) { o.Start = wasmkit.Int(-1) })},
		"reads 129 facts, the limit is 128":                                                                                       {Code: with(func(o *wasmkit.Options) { o.Facts = slices.Repeat([]string{"a"}, 129) })},
	} {
		o.Memory, o.Steps = 2<<20, 200_000
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Open(Options{Code: with(func(o *wasmkit.Options) { o.Import = "wasi_snapshot_preview1.sched_yield" }), Memory: 2 << 20, Steps: 200_000}); err != nil {
		t.Errorf("an import of WASI: %v", err)
	}
}

// TestProgramsAreShared: a module that is opened again is not compiled again, unless its limit of
// memory differs.
func TestProgramsAreShared(t *testing.T) {
	o := options(wasmkit.Copy(false, 1))
	a, b := open(t, o), open(t, o)
	o.Memory *= 2
	if c := open(t, o); a.program != b.program || a.program == c.program {
		t.Error("programs are not shared by content and limit")
	}
}

// TestCleanup: a module that is no longer used closes its instances, and its program is forgotten when no
// module uses it.
func TestCleanup(t *testing.T) {
	o := options(wasmkit.Copy(false, 1))
	o.Memory = 3 << 20 // a program that no other test has
	key := programKey{sha256.Sum256(o.Code), uint32(o.Memory / pageSize)}
	other := open(t, o)
	i := func() *instance { return open(t, o).slots[0].instance }()
	testkit.Await(t, "the instance of an unused module closed", func() bool {
		runtime.GC()
		return i.module.IsClosed()
	})
	if reason, _ := (numbers{1}).score(other); reason != OK || findProgram(key) == nil {
		t.Errorf("the other module of the program: %v", reason)
	}
	i = nil
	testkit.Await(t, "the unused program forgotten", func() bool {
		runtime.GC()
		return findProgram(key) == nil
	})
}

// TestContinue: a module that replaces another one continues its counts.
func TestContinue(t *testing.T) {
	old, fresh := open(t, options(wasmkit.Trap)), open(t, options(wasmkit.Copy(false, 1)))
	numbers{1}.score(old)
	fresh.Continue(old.Stats())
	numbers{1}.score(fresh)
	if s := fresh.Stats(); s.Calls != 2 || s.Failed[Trap] != 1 || s.Failed[OK] != 1 || s.Seconds <= 0 {
		t.Errorf("stats %+v", s)
	}
}

// texts is a source with one text for the request and one for each endpoint.
type texts struct {
	request   string
	endpoints []string
}

func (s texts) WriteRequest(w *Writer)         { w.Text(s.request) }
func (s texts) WriteEndpoint(k int, w *Writer) { w.Text(s.endpoints[k]) }

// TestTexts: a module finds texts by address and length, also when they need a larger area.
func TestTexts(t *testing.T) {
	// The score of an endpoint is the first byte of its text, and 100 times the request's length.
	body := []byte{0x20, 3, 0x20, 1, 0x28, 2, 0, 0x2d, 0, 0, 0x20, 0, 0x28, 2, 4, 0x41, 0xe4, 0, 0x6c, 0x6a, 0xb8, 0x39, 3, 0, 0x41, 0}
	m := open(t, options(body))
	m.SetShape(1, 1)
	for _, size := range []int{3, 30_000, 5} {
		scores := make([]float64, 1)
		in := texts{strings.Repeat("r", size), []string{"x"}}
		if reason := m.Score(t0, in, scores); reason != OK || scores[0] != float64('x'+100*size) {
			t.Errorf("a text of %d bytes: %v, score %v", size, reason, scores)
		}
	}
}

func TestAllocations(t *testing.T) {
	m := open(t, options(wasmkit.Copy(false, 1)))
	in, scores := make(numbers, 100), make([]float64, 100)
	var s Source = in
	m.Score(t0, s, scores)
	if n := testing.AllocsPerRun(100, func() { m.Score(t0, s, scores) }); n != 0 {
		t.Errorf("%v allocations for a call, want 0", n)
	}
}

// FuzzModule: no bytes make the meter, the start or a call panic, or run without end. Scores are NaN
// or finite.
func FuzzModule(f *testing.F) {
	f.Add(wasmkit.Module(wasmkit.Options{Facts: []string{oneFact}, Body: wasmkit.Copy(false, 1)}))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x06\b\xca\xca\xca00000")) // 100 million globals
	f.Add(wasmkit.Module(wasmkit.Options{Body: wasmkit.Fill, Start: wasmkit.Int(wasmkit.TextAt), Text: "no"}))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, code []byte) {
		m, err := Open(Options{Code: code, Memory: 2 << 20, Steps: 20_000})
		if err != nil {
			return
		}
		m.SetShape(0, 1)
		reason, scores := numbers{.25, .5}.score(m)
		for _, s := range scores {
			if math.IsInf(s, 0) || reason == OK && math.IsNaN(s) {
				t.Errorf("%v, scores %v", reason, scores)
			}
		}
	})
}

// FuzzMeter: the meter neither panics nor writes a module that it cannot read itself.
func FuzzMeter(f *testing.F) {
	f.Add(wasmkit.Module(wasmkit.Options{Facts: []string{oneFact}, Body: wasmkit.Copy(false, 1)}))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, code []byte) {
		m, err := meter(code, startSteps)
		if err != nil {
			return
		}
		if _, err := meter(m.code, startSteps); err != nil {
			t.Errorf("the metered module is not valid: %v", err)
		}
	})
}

func BenchmarkScore(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			m := open(b, options(wasmkit.Copy(false, 1)))
			in, scores := make(numbers, n), make([]float64, n)
			b.ReportAllocs()
			for b.Loop() {
				if m.Score(t0, in, scores) != OK {
					b.Fatal(m.Stats().Last)
				}
			}
		})
	}
}
