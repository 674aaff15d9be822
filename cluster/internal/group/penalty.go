package group

import "time"

// Penalty keeps a way from being used after it failed: the longer, the sooner it failed again.
type Penalty struct {
	until, span time.Duration
}

const (
	penaltyLeast = 5 * time.Second
	penaltyMost  = 5 * time.Minute
)

// On reports whether the way is not to be used.
func (f *Penalty) On(now time.Duration) bool { return now < f.until }

// Fail notes that the way failed.
func (f *Penalty) Fail(now time.Duration) {
	switch {
	case f.On(now):
		return
	case f.until > 0 && now-f.until < f.span:
		f.span = min(2*f.span, penaltyMost)
	default:
		f.span = penaltyLeast
	}
	f.until = now + f.span
}
