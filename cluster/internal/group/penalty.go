package group

import "time"

// Penalty keeps a route out of use after a failure. The penalty grows if the route fails again
// soon.
type Penalty struct {
	until, span time.Duration
}

const (
	penaltyLeast = 5 * time.Second
	penaltyMost  = 5 * time.Minute
)

// On reports whether the route is out of use at now.
func (f *Penalty) On(now time.Duration) bool { return now < f.until }

// Fail records a failure of the route.
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
