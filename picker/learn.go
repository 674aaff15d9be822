package picker

import (
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

// learnNeeds learns the time of loads from the excess over the prediction. It reports whether the
// engine had to load something, which its prefill time does not show.
func (f *flight) learnNeeds(excess float64) bool {
	if f.ready.Used != 0 {
		f.s.opts.Pool.NeedTimes().Observe(f.ready.Missing, excess+f.predicted.Load)
	}
	return f.ready.Missing != 0
}

// learnAnswer learns the length of a complete answer.
func (f *flight) learnAnswer(o *request.Outcome) {
	if o.Status >= 400 || !o.Complete || o.Broken || o.Unclosed || f.request.Kind == request.KindOther {
		return
	}
	tokens := f.tokens + 1
	if o.Usage.Seen {
		tokens = o.Usage.OutputTokens
	} else if f.tokens == 0 {
		return // no token count is available
	}
	f.s.opts.Pool.Answers().Observe(f.request.Target, f.request.MaxTokens, tokens)
}

// measureDemand samples the request's work for sizing. An answer of unknown length has the expected one.
func (f *flight) measureDemand(o *request.Outcome) {
	if f.s.opts.Sizing == nil || f.ep.IsRemote() || o.Status >= 400 {
		return
	}
	tokens := f.tokens + 1
	if o.Usage.Seen {
		tokens = o.Usage.OutputTokens
	} else if f.tokens == 0 {
		tokens = int(f.s.opts.Pool.Answers().Expect(f.request.Target, f.request.MaxTokens))
	}
	f.s.opts.Sizing.Ended(f.ep, sizing.Request{Input: int32(f.queued.Own.Input), New: int32(f.queued.Own.New), Output: int32(tokens)}, o.At)
}

// learnStep learns the time between tokens from sufficiently long answers.
func (f *flight) learnStep() {
	const enough = 8
	if f.tokens < enough || !f.lastAt.After(f.firstAt) || !f.learn.step {
		return
	}
	l := f.s.opts.Pool.LoadTracker().RankLoad(f.ep, f.lastAt)
	step := f.lastAt.Sub(f.firstAt).Seconds() / float64(f.tokens)
	f.s.opts.Pool.LearnStep(f.ep, float64(l.Requests-l.Waiting)+1, float64(l.Context+int64(f.queued.Own.Input)), step, f.lastAt)
}
