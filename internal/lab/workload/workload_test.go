package workload

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// play returns the bodies of a session that gets the same answer to each turn.
func play(s *Session) (bodies [][]byte) {
	for t, ok := s.Next(""); ok; t, ok = s.Next("an answer") {
		bodies = append(bodies, t.Body)
	}
	return bodies
}

// TestSessionsRepeat: a session is a function of seed and number.
func TestSessionsRepeat(t *testing.T) {
	for _, k := range kinds {
		k = small(k, 20)
		a, b, other := NewSource(k, 1, "m", .5), NewSource(k, 1, "m", .5), NewSource(k, 2, "m", .5)
		_ = play(a.Session(7))
		if !slices.EqualFunc(play(a.Session(3)), play(b.Session(3)), bytes.Equal) {
			t.Errorf("%s: session 3 differs", k.Name)
		}
		if slices.EqualFunc(play(a.Session(3)), play(other.Session(3)), bytes.Equal) || slices.EqualFunc(play(a.Session(3)), play(a.Session(4)), bytes.Equal) {
			t.Errorf("%s: other seeds or numbers give the same session", k.Name)
		}
	}
}

// TestTurnsGrow: each turn's prompt begins with the one before and its answer.
func TestTurnsGrow(t *testing.T) {
	s := NewSource(small(Agents, 20), 5, "m", 0).Session(1)
	before, turns := "", 0
	for turn, ok := s.Next(""); ok; turn, ok = s.Next("so it is") {
		prompt := string(turn.Prompt(nil))
		if before != "" && !strings.HasPrefix(prompt, before+"so it is"+vocab.ImEnd) {
			t.Fatalf("turn %d does not continue turn %d", turn.Number, turn.Number-1)
		}
		var body struct {
			Messages  []vocab.Message
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.Unmarshal(turn.Body, &body); err != nil || len(body.Messages) != 2+2*turns || body.MaxTokens != turn.Answer {
			t.Fatalf("turn %d: %v, %d messages", turn.Number, err, len(body.Messages))
		}
		before, turns = prompt, turns+1
	}
	if turns < 2 {
		t.Errorf("%d turns", turns)
	}
}

// TestShapes: mean lengths are close to the kind's parameters, and the choice of shared texts
// follows Zipf's law.
func TestShapes(t *testing.T) {
	k := Chat
	k.Shared = 5
	src := NewSource(k, 1, "m", 0.25)
	const n = 800
	turns, whole, firsts := 0, 0, map[string]int{}
	for i := range n {
		s := src.Session(i)
		for turn, ok := s.Next(""); ok; turn, ok = s.Next("x") {
			turns++
			if !turn.Stream {
				whole++
			}
		}
		firsts[string(s.messages[0].Content)[:40]]++
	}
	if mean := float64(turns) / n; math.Abs(mean-float64(k.Turns)) > 0.6 {
		t.Errorf("%.2f turns per session, want about %d", mean, k.Turns)
	}
	if share := float64(whole) / float64(turns); math.Abs(share-.25) > .03 {
		t.Errorf("%.2f of the requests do not stream", share)
	}
	var counts []int
	for _, c := range firsts {
		counts = append(counts, c)
	}
	slices.Sort(counts)
	if len(counts) != 5 || counts[4] < 2*counts[2] {
		t.Errorf("system prompts are used %v times", counts)
	}
}

func TestMixedSizes(t *testing.T) {
	src := NewSource(Mixed, 1, "m", 0)
	var sizes []int
	for i := range 300 {
		turn, _ := src.Session(i).Next("")
		sizes = append(sizes, len(turn.Body)>>10)
	}
	slices.Sort(sizes)
	if low, mid, high := sizes[30], sizes[150], sizes[299]; low > 4 || mid < 10 || mid > 70 || high < 700 || high > 1100 {
		t.Errorf("bodies of %d (p10), %d (median), %d KB (largest)", low, mid, high)
	}
}

func TestParseKind(t *testing.T) {
	for _, k := range kinds {
		if got, err := ParseKind(k.Name); err != nil || got != k {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if _, err := ParseKind("nonsense"); err == nil {
		t.Error("nonsense is a kind")
	}
}

func TestDist(t *testing.T) {
	var d Dist
	if d.Quantile(.5) != 0 || d.Mean() != 0 {
		t.Error("an empty distribution has values")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var all []time.Duration
	for range 5000 {
		v := time.Duration(rng.ExpFloat64() * float64(200*time.Millisecond))
		all = append(all, v)
		d.Add(v)
	}
	old := d
	for range 1000 {
		d.Add(time.Hour)
	}
	slices.Sort(all)
	for _, q := range []float64{.1, .5, .9, .99} {
		want := all[int(q*float64(len(all)))]
		if got := old.Quantile(q); math.Abs(float64(got)/float64(want)-1) > .04 {
			t.Errorf("p%v is %v, want %v", q*100, got, want)
		}
	}
	late := d.minus(&old)
	if late.Count() != 1000 || late.Quantile(.1) < 20*time.Minute || late.Mean() != time.Hour {
		t.Errorf("difference: %d, p10 %v, mean %v", late.Count(), late.Quantile(.1), late.Mean())
	}
}

func TestTotalsMinus(t *testing.T) {
	var r Recorder
	record := func(engine string, cached int) {
		r.end(&Outcome{Engine: engine, PromptTokens: 100, CachedTokens: cached, TTFT: time.Second}, r.begin(), 100, 80)
	}
	record("a", 0)
	old := r.Totals()
	record("a", 60)
	record("b", 40)
	now := r.Totals()
	got := now.Minus(&old)
	if got.Requests != 2 || got.HitRatio() != .5 || got.IdealRatio() != .8 || got.TTFT.Count() != 2 || got.Engines["a"].HitRatio() != .6 || got.Engines["b"].Requests != 1 {
		t.Errorf("%+v", got)
	}
}

// A request belongs to the cohort of its sending time, independent of its end.
func TestCohorts(t *testing.T) {
	var r Recorder
	answer := func(cached int) *Outcome { return &Outcome{Engine: "a", PromptTokens: 100, CachedTokens: cached} }
	r.end(answer(7), r.begin(), 0, 0) // of none
	one := r.NextCohort()
	early, late := r.begin(), r.begin()
	r.end(answer(20), early, 0, 0)
	two := r.NextCohort()
	r.end(answer(90), r.begin(), 0, 0)
	r.end(answer(40), late, 0, 0)
	r.end(&Outcome{Err: ErrWrong, PromptTokens: 100}, r.begin(), 0, 0)
	if got := []EngineTotals{r.Cohort(one), r.Cohort(two)}; got[0] != (EngineTotals{2, 200, 60}) || got[1] != (EngineTotals{1, 100, 90}) {
		t.Errorf("%+v", got)
	}
}

func TestIdeal(t *testing.T) {
	c := NewIdeal(vocab.New(), 4)
	ask := func(text string, want int) {
		t.Helper()
		if _, hit := c.Request([]byte(text)); hit != want {
			t.Errorf("%q: %d tokens hit, want %d", text, hit, want)
		}
	}
	ask(" the the the the the the the the", 0)
	ask(" the the the the the the the the", 4) // the last token is computed
	ask(" the the the the the the the the the", 8)
	c.Learn([]byte(" of of"), " in in in")
	ask(" of of in in in", 4)
}
