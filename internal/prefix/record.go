package prefix

import (
	"slices"
	"time"
)

// Weights of comparisons. A single wrong prediction is normal, because a full cache evicts between
// decision and prefill.
const (
	memory       = 16  // effective number of comparisons
	enough       = 8   // minimum comparisons for a verdict
	wrongShare   = .5  // share of wrong predictions for a verdict
	rightShare   = .25 // share of wrong predictions that ends it
	confirmAfter = 8   // consecutive correct predictions for a confirmation
	watched      = 64  // answers requested while there is no verdict
	reportFor    = 64  // answers for which an earlier report of cached tokens counts
)

// A stream without a reader causes under-predictions that say nothing about prompts. Another
// replica takes it over within three seconds.
const (
	lull    = 4 * time.Second        // under-predictions within it may have that cause
	lulls   = 2                      // such periods for a verdict
	abreast = 100 * time.Millisecond // events this recent were up to date
)

// usualSlack is the tolerance in tokens if the block size is unknown, for large blocks.
const usualSlack = 64

// comparison is a request's prediction and its engine's report.
type comparison struct {
	prompt     int  // tokens
	cached     int  // tokens that the engine had cached
	precise    int  // predicted by the events
	guess      int  // predicted by sent prompts; -1: not available
	block      int  // tokens per block, 0 when unknown
	abreast    bool // events arrived just before the decision and after it
	otherTopic bool // no event ever arrived, and the publisher uses another topic only
}

// outcome is the result of a comparison beyond the tolerance.
type outcome uint8

const (
	nothing outcome = iota // neither predicted nor cached
	right
	over  // the engine had less
	under // the engine had more
)

// record is the audit state of one endpoint and model. It depends only on the sequence of
// comparisons.
type record struct {
	total       [under + 1]uint64
	skipped     uint64 // answers to requests that bypass the cache
	n           int    // effective comparisons, at most memory
	over        float64
	under       float64
	errors      [2]float64 // mean errors of events and of estimates, as shares of the prompt
	inRow       int        // consecutive correct predictions
	head        float64    // tokens predicted in under-predictions
	step        int        // greatest common divisor of reported tokens
	counts      [3]int     // some distinct reported counts; 0: none yet
	equal       int        // exact predictions
	oneLess     int        // predictions with one block too many
	lulls       int        // periods of under-prediction, at most lulls
	lull        time.Time  // beginning of the last period
	shorts      int        // under-predictions with events before and after the decision; enough if none can arrive
	wrong       outcome    // current verdict: over, under, or nothing
	short       bool       // the engine had more than known, and no report has been requested
	invalidated int        // invalidations since the events were last correct
	since       time.Time  // of the verdict
	asked       int        // answers observed, including those without usage
	requests    int        // requests that ended
	plain       float64    // share not matched in their own space
	reports     asking     // of full reports
	reporting   int        // remaining answers whose silence counts as zero cached tokens
	unlike      bool       // its engine renders such prompts differently
	mute        int        // consecutive silent answers despite expected cache hits
	blind       int        // consecutive requested answers without usage
}

// observeReport records whether an answer reported cached tokens. none is true if the missing field means
// 0: engines omit the field if it is 0 (vLLM before 0.33), or always. expected means that a cached
// prefix was predicted.
func (r *record) observeReport(said, expected bool) (none bool) {
	switch {
	case said:
		r.reporting, r.mute = reportFor, 0
		return false
	case expected:
		r.mute = min(r.mute+1, memory)
		none = r.reporting > 0
		r.reporting = max(r.reporting-1, 0)
		return none
	}
	return r.reporting > 0
}

// slack returns the tolerance in tokens: one block, which engines with speculative decoding (EAGLE,
// MTP) also omit, plus the last token, which is always computed.
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

// stepped reports whether the greatest common divisor of reported counts indicates a block size; a
// single count divides itself.
func (r *record) stepped() bool {
	return r.counts[2] > 0 || r.counts[1] > 0 && r.step < min(r.counts[0], r.counts[1])
}

// blockOf returns the known block size, or the default.
func blockOf(known int) int {
	if known > 0 {
		return known
	}
	return usualBlockTokens
}

// judge returns the outcome of a prediction.
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

// consequence is the effect of a comparison.
type consequence struct {
	outcome
	invalid   bool // the events do not describe the cache: reread them
	confirmed bool // the events describe the cache
	changed   bool // the verdict has changed
}

// add records one comparison.
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
		r.asked = min(r.asked, watched-memory) // watch again after a wrong prediction
	}
	out.confirmed = r.inRow >= confirmAfter
	r.conclude(&out, now)
	return out
}

// fellShort records an under-prediction.
func (r *record) fellShort(c *comparison, now time.Time) {
	switch {
	case c.otherTopic:
		r.shorts = enough
	case c.abreast:
		r.shorts++
	}
	if r.lulls == 0 || now.Sub(r.lull) >= lull {
		r.lulls, r.lull = min(r.lulls+1, lulls), now
	}
}

// lacking reports whether the engine has more than known for a reason other than a temporarily
// unread stream.
func (r *record) lacking() bool { return r.lulls >= lulls || r.shorts >= enough }

// conclude updates the verdict.
func (r *record) conclude(out *consequence, now time.Time) {
	was := r.wrong
	switch {
	case r.n < enough:
	case r.under >= wrongShare:
		if r.lacking() {
			r.wrong = under
		}
	case r.over >= wrongShare:
		if r.invalidated++; r.invalidated == 1 {
			out.invalid = true
			r.n, r.over, r.under, r.inRow = 0, 0, 0, 0
			return
		}
		r.wrong = over
	case r.over+r.under <= rightShare:
		r.wrong, r.invalidated, r.lulls, r.shorts = nothing, 0, 0, 0
	}
	if out.changed = r.wrong != was; out.changed {
		r.since = now
	}
}

// guessing reports whether sent prompts predict the endpoint's cache better than its events, or are
// expected to.
func (r *record) guessing() bool {
	return r.wrong != nothing && r.errors[1] < r.errors[0] || r.unlike && r.n < enough
}

// watching reports whether to request answers: the first ones, and those after a wrong prediction.
func (r *record) watching() bool {
	return r.asked < watched && (r.n < enough || r.over+r.under > rightShare || r.inRow == 0)
}

// dropsBlock reports whether the engine does not reuse the last held block.
func (r *record) dropsBlock() bool {
	return r.oneLess >= enough && r.oneLess >= 19*(r.equal+1)
}

// ended records the end of a request. plain means that it was not matched in its own space.
func (r *record) ended(plain bool) {
	r.requests = min(r.requests+1, memory)
	near(&r.plain, share(plain), r.requests)
}

// near updates a mean of n values with the newest one.
func near(mean *float64, v float64, n int) { *mean += (v - *mean) / float64(n) }

func share(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// errorOf returns the error of a prediction as a share of the prompt.
func errorOf(predicted int, c *comparison) float64 {
	return float64(max(predicted-c.cached, c.cached-predicted)) / float64(max(c.prompt, 1))
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
