package ticks

import "time"

var began = time.Now()

// Next returns the first common instant of the period every after now. It returns now if every is not
// positive.
func Next(now time.Time, every time.Duration) time.Time {
	if every <= 0 {
		return now
	}
	since := now.Sub(began) % every
	if since < 0 {
		since += every
	}
	return now.Add(every - since)
}

// Last returns the last common instant of the period every at or before t. It returns t if every is not
// positive.
func Last(t time.Time, every time.Duration) time.Time {
	if every <= 0 {
		return t
	}
	return Next(t, every).Add(-every)
}

// Until returns the time until the next common instant of the period every. It is at least a tenth of the
// period, so that a timer that fires slightly early does not count an instant twice.
func Until(every time.Duration) time.Duration {
	now := time.Now()
	left := Next(now, every).Sub(now)
	if left < every/10 {
		left += every
	}
	return left
}
