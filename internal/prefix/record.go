package prefix

import (
	"slices"
	"time"
)

// How comparisons are weighed: one wrong prediction alone is ordinary, since a full
// cache evicts between decision and prefill.
const (
	memory  = 16  // comparisons that count
	enough  = 8   // before anything is concluded
	doubt   = .5  // share of wrong ones that makes a verdict
	relief  = .25 // share of wrong ones at which it ends
	trust   = 8   // right ones in a row
	watched = 64  // answers that are asked for while there is no verdict
	spoken  = 64  // answers for which it counts that one has told of cached tokens
)

// A stream that nobody reads for a while makes predictions fall short, and proves nothing
// of prompts: it is noticed, and taken over, within three seconds.
const (
	lull    = 4 * time.Second        // what falls short within it may be one such while
	lulls   = 2                      // so many of them make a verdict
	abreast = 100 * time.Millisecond // what events told so lately was up to date
)

// usualSlack is how many tokens a prediction may be off where the size of blocks is
// not known: that of the larger ones.
const usualSlack = 64

// comparison is what was predicted of one request, and what its engine reports.
type comparison struct {
	prompt  int  // tokens
	cached  int  // tokens that the engine had
	precise int  // by the events
	guess   int  // by what was sent there; -1: nobody looked
	block   int  // tokens of a block, 0 when not known
	abreast bool // events were taken in the moment before the decision, and after it
	astray  bool // none ever was, and its publisher was seen to send under another topic alone
}

// outcome is how a prediction turned out, beyond the slack.
type outcome uint8

const (
	nothing outcome = iota // neither predicted nor there
	right
	over  // the engine had less
	under // it had more
)

// record is what is known of the predictions for one endpoint and one model. It is a
// function of the comparisons, in their order, and of nothing else.
type record struct {
	total    [under + 1]uint64
	skipped  uint64 // answers to requests that read no cache
	n        int    // comparisons that count, at most memory
	over     float64
	under    float64
	errors   [2]float64 // of events and of guesses, as shares of the prompt
	inRow    int        // right ones
	head     float64    // tokens predicted, where the engine had more
	step     int        // greatest common divisor of reported tokens
	counts   [3]int     // some of these that differ; 0: none yet
	equal    int        // predictions that were met to the token
	oneLess  int        // predictions of which the engine had all but one block
	lulls    int        // while the engine had more, at most lulls
	lull     time.Time  // when the last of them began
	shorts   int        // of such comparisons those with events before and after the decision; enough where none can come
	wrong    outcome    // over, under, or nothing: the present verdict
	short    bool       // the engine had more than was known, and has not been asked for it
	doubted  int        // times that the events were doubted since they were right
	since    time.Time  // of the verdict
	asked    int        // answers that were seen, also those that named no tokens
	requests int        // requests that ended
	plain    float64    // share of those that were not matched in their own space
	reports  asking     // of full reports
	told     int        // answers without a word of cached tokens that will be taken as told of none
	unlike   bool       // its engine builds such prompts otherwise
	mute     int        // such answers in a row to prompts that should have had some
	blind    int        // answers in a row that were asked for and told nothing of tokens
}

// tells notes whether an answer said how many tokens were cached, and reports whether its
// silence says that none were: engines leave the number out where it is 0 (vLLM before
// 0.33), or always. expected: some should have been.
func (r *record) tells(said, expected bool) (none bool) {
	switch {
	case said:
		r.told, r.mute = spoken, 0
		return false
	case expected:
		r.mute = min(r.mute+1, memory)
		none = r.told > 0
		r.told = max(r.told-1, 0)
		return none
	}
	return r.told > 0
}

// slack is how many tokens a prediction may be off: a block, which is also what engines
// that speculate (EAGLE, MTP) leave out, and the last token, which is always computed.
func (r *record) slack(block int) int {
	switch {
	case block > 0:
	case r.n >= enough/2 && r.step > 1 && r.stepped():
		block = r.step
	default:
		block = usualSlack
	}
	return max(block, blockOf(0)) + 1
}

// stepped reports whether the greatest common divisor of what was reported says something
// of blocks: one count alone divides itself.
func (r *record) stepped() bool {
	return r.counts[2] > 0 || r.counts[1] > 0 && r.step < min(r.counts[0], r.counts[1])
}

// blockOf is the size of a block for lack of better.
func blockOf(known int) int {
	if known > 0 {
		return known
	}
	return usualBlockTokens
}

// judge tells how a prediction turned out.
func (r *record) judge(predicted, cached, slack int) outcome {
	switch {
	case predicted-cached > slack:
		return over
	case cached-predicted > slack:
		return under
	case max(predicted, cached) <= slack:
		return nothing
	}
	return right
}

// consequence is what follows from a comparison.
type consequence struct {
	outcome
	distrust bool // the events do not describe the cache: read them anew
	vouch    bool // they do
	changed  bool // the verdict is another
}

// add enters one comparison.
func (r *record) add(c comparison, now time.Time) (out consequence) {
	out.outcome = r.judge(c.precise, c.cached, r.slack(c.block))
	r.step = gcd(r.step, c.cached)
	if free := slices.Index(r.counts[:], 0); free >= 0 && !slices.Contains(r.counts[:], c.cached) {
		r.counts[free] = c.cached
	}
	r.total[out.outcome]++
	r.reports.compared(&c, out.outcome)
	if out.outcome == nothing {
		return out
	}
	r.n = min(r.n+1, memory)
	near(&r.over, share(out.outcome == over), r.n)
	near(&r.under, share(out.outcome == under), r.n)
	near(&r.errors[0], errorOf(c.precise, &c), r.n)
	if c.guess >= 0 {
		near(&r.errors[1], errorOf(c.guess, &c), r.n)
	}
	switch {
	case out.outcome == under:
		near(&r.head, float64(c.precise), r.n)
		r.short = true
		r.fellShort(&c, now)
	case c.precise == c.cached:
		r.equal++
	case c.precise-c.cached == blockOf(c.block):
		r.oneLess++
	}
	if r.inRow++; out.outcome != right {
		r.inRow = 0
	} else {
		r.asked = min(r.asked, watched-memory) // what goes wrong later is looked at again
	}
	out.vouch = r.inRow >= trust
	r.conclude(&out, now)
	return out
}

// fellShort notes that the engine had more than was known.
func (r *record) fellShort(c *comparison, now time.Time) {
	switch {
	case c.astray:
		r.shorts = enough
	case c.abreast:
		r.shorts++
	}
	if r.lulls == 0 || now.Sub(r.lull) >= lull {
		r.lulls, r.lull = min(r.lulls+1, lulls), now
	}
}

// lacking reports whether the engine has more than is known for another reason than that
// its events were not read for a while.
func (r *record) lacking() bool { return r.lulls >= lulls || r.shorts >= enough }

// conclude draws the verdict.
func (r *record) conclude(out *consequence, now time.Time) {
	was := r.wrong
	switch {
	case r.n < enough:
	case r.under >= doubt:
		if r.lacking() {
			r.wrong = under
		}
	case r.over >= doubt:
		if r.doubted++; r.doubted == 1 {
			out.distrust = true
			r.n, r.over, r.under, r.inRow = 0, 0, 0, 0
			return
		}
		r.wrong = over
	case r.over+r.under <= relief:
		r.wrong, r.doubted, r.lulls, r.shorts = nothing, 0, 0, 0
	}
	if out.changed = r.wrong != was; out.changed {
		r.since = now
	}
}

// guessing reports whether what was sent to the endpoint has told more of its cache
// than its events, or can be expected to.
func (r *record) guessing() bool {
	return r.wrong != nothing && r.errors[1] < r.errors[0] || r.unlike && r.n < enough
}

// watching reports whether answers should be asked for: the first ones, and those after a
// wrong one.
func (r *record) watching() bool {
	return r.asked < watched && (r.n < enough || r.over+r.under > relief || r.inRow == 0)
}

// dropsBlock reports whether the engine leaves out the last block of what it holds.
func (r *record) dropsBlock() bool {
	return r.oneLess >= enough && r.oneLess >= 19*(r.equal+1)
}

// ended notes that a request has ended, matched in its own space or not.
func (r *record) ended(plain bool) {
	r.requests = min(r.requests+1, memory)
	near(&r.plain, share(plain), r.requests)
}

// near moves a mean of n values towards the newest.
func near(mean *float64, v float64, n int) { *mean += (v - *mean) / float64(n) }

func share(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// errorOf is how far a prediction was off, as a share of the prompt.
func errorOf(predicted int, c *comparison) float64 {
	return float64(max(predicted-c.cached, c.cached-predicted)) / float64(max(c.prompt, 1))
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
