package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func read(t testing.TB, lines string, o ReadOptions) *Trace {
	t.Helper()
	tr, err := Read(strings.NewReader(lines), o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestReadErrors(t *testing.T) {
	f := func(lines, want string) {
		t.Helper()
		_, err := Read(strings.NewReader(lines), ReadOptions{BlockSize: 10})
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", lines, err)
		}
	}
	f("", "no request")
	f("{", "line 1")
	f(`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}`+"\n"+`{"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[]}`, "line 2: timestamp")
	f(`{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}`, "input_length 0")
	f(`{"timestamp":0,"input_length":30,"output_length":1,"hash_ids":[1,2]}`, "2 hash_ids for 30 tokens")
	f(`{"timestamp":0,"input_length":30,"output_length":1,"hash_ids":[1,"x",3]}`, "hash_ids")
}

func TestDerivedSessions(t *testing.T) {
	// Blocks 1 and 2 are a preamble with many continuations. Session a continues twice; c repeats
	// b's prompt with another ending.
	var lines strings.Builder
	add := func(at int, tokens int, ids string) {
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": %d, "output_length": 12, "hash_ids": [%s]}`+"\n", at, tokens, ids)
	}
	add(0, 35, "1,2,3,4")              // a
	add(1, 45, "1,2,20,21,22")         // b
	add(2, 52, "1,2,3,40,41,42")       // a
	add(3, 20, "1,2")                  // only the preamble: belongs to no session
	add(4, 25, "1,2,60")               // new
	add(5, 75, "1,2,3,40,41,50,51,52") // a
	add(6, 45, "1,2,20,21,70")         // b
	for i := range sharedFrom {
		add(10+i, 31, fmt.Sprintf("1,2,%d,%d", 100+i, 200+i))
	}
	tr := read(t, lines.String(), ReadOptions{BlockSize: 10, Spread: -1})
	var got []int32
	for _, r := range tr.Requests[:7] {
		got = append(got, r.Session)
	}
	if d := cmp.Diff([]int32{0, 1, 0, 2, 3, 0, 1}, got); d != "" {
		t.Error(d)
	}
	if tr.Sessions != 4+sharedFrom {
		t.Errorf("%d sessions", tr.Sessions)
	}
	// a's first prompt fills blocks 1, 2, 3; with its answer 47 tokens: block 40 too.
	if d := cmp.Diff(tr.Requests[2].Blocks[3:4], tr.Requests[0].Answer); d != "" {
		t.Error(d)
	}
}

func TestSpread(t *testing.T) {
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": 1, "output_length": 1, "hash_ids": [%d]}`+"\n", i/30*3000, i)
	}
	distinct := func(tr *Trace) int {
		seen := map[time.Duration]bool{}
		for _, r := range tr.Requests {
			seen[r.At] = true
		}
		return len(seen)
	}
	if tr := read(t, lines.String(), ReadOptions{}); distinct(tr) < 290 || tr.Length > 30*time.Second {
		t.Errorf("%d moments in %v", distinct(tr), tr.Length)
	}
	if tr := read(t, lines.String(), ReadOptions{Spread: -1}); distinct(tr) != 10 {
		t.Errorf("%d moments", distinct(tr))
	}
	var single strings.Builder
	for i := range 30 {
		fmt.Fprintf(&single, `{"timestamp": %d, "input_length": 1, "output_length": 1, "hash_ids": [%d]}`+"\n", i*3000, i)
	}
	if tr := read(t, single.String(), ReadOptions{}); tr.Requests[7].At != 21*time.Second {
		t.Errorf("arrivals that come one by one were spread: %v", tr.Requests[7].At)
	}
}

func TestCapped(t *testing.T) {
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": 10, "output_length": 1, "hash_ids": [%d], "session_id": "s%d"}`+"\n", 10*i, i, i%4/3*(i%7))
	}
	tr := read(t, lines.String(), ReadOptions{BlockSize: 10})
	capped := tr.Capped(8)
	count := map[int32]int{}
	for _, r := range capped.Requests {
		count[r.Session]++
	}
	all := map[int32]int{}
	for _, r := range tr.Requests {
		all[r.Session]++
		if all[r.Session] <= 8 != slices.ContainsFunc(capped.Requests, func(c Request) bool { return c.At == r.At }) {
			t.Errorf("turn %d of session %d", all[r.Session], r.Session)
		}
	}
	for s, n := range all {
		if count[s] != min(n, 8) {
			t.Errorf("session %d keeps %d of %d", s, count[s], n)
		}
	}
	if !slices.IsSortedFunc(capped.Requests, byArrival) {
		t.Error("not in order of time")
	}
}

func TestScale(t *testing.T) {
	tr := small(t, "agentic", 2, 7)
	f := func(rate float64) *Trace {
		t.Helper()
		s := tr.Scale(ScaleOptions{Rate: rate, Seed: 3})
		if got := s.Rate(); got < rate*.95 || got > rate*1.3 {
			t.Errorf("rate %v, want %v", got, rate)
		}
		if !slices.IsSortedFunc(s.Requests, byArrival) {
			t.Error("not in order")
		}
		return s
	}
	f(1)
	double := f(4)
	// Copies share exactly the blocks that sessions of the original share.
	shared, owner := 0, map[Block]int32{}
	private := tr.private()
	for _, r := range double.Requests {
		for _, b := range r.Blocks {
			if int(b) < len(private) && !private[b] {
				shared++
				continue
			}
			if s, ok := owner[b]; ok && s != r.Session {
				t.Fatalf("sessions %d and %d share block %d", s, r.Session, b)
			}
			owner[b] = r.Session
		}
	}
	if shared == 0 {
		t.Error("preambles are not shared")
	}
	fast := tr.Scale(ScaleOptions{Speed: 2, Duration: time.Minute})
	if fast.Length != time.Minute || fast.Rate() < 1.8*tr.Rate() {
		t.Errorf("%v, rate %v of %v", fast.Length, fast.Rate(), tr.Rate())
	}
}

func TestWorkloads(t *testing.T) {
	for _, w := range Workloads {
		tr := w.Generate(GenerateOptions{Rate: 3, Length: 20 * time.Minute, Seed: 1})
		crowd := w.Flash.Factor * 3 * min(w.Flash.Length, tr.Length/10).Minutes() / 20
		if got := tr.Rate(); got < 2 || got > 3.05+crowd*1.05 {
			t.Errorf("%s: rate %v", w.Name, got)
		}
		last := map[int32]*Request{}
		for i := range tr.Requests {
			r := &tr.Requests[i]
			if r.Input > w.Limit+w.Preamble.tokensMax() || len(r.Blocks) != (r.Input+tr.BlockSize-1)/tr.BlockSize {
				t.Fatalf("%s: %d tokens in %d blocks", w.Name, r.Input, len(r.Blocks))
			}
			if p := last[r.Session]; p != nil && p.Input <= r.Input && p.Full(tr.BlockSize) > 0 && r.Blocks[0] != p.Blocks[0] {
				t.Fatalf("%s: a turn does not begin as the one before", w.Name)
			}
			last[r.Session] = r
		}
	}
	if _, err := Named("x"); err == nil || !strings.Contains(err.Error(), "agentic") {
		t.Error(err)
	}
}

func (s Spread) tokensMax() int { return int(s.Max) }

// small returns a generated load of some minutes.
func small(t testing.TB, name string, rate float64, seed uint64) *Trace {
	t.Helper()
	w, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return w.Generate(GenerateOptions{Rate: rate, Length: 4 * time.Minute, Seed: seed})
}
