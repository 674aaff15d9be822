package picker

import (
	"github.com/grapevine-epp/grapevine/picker/request"
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
