package group

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		name          string
		samples       []time.Duration
		smoothed, out time.Duration // out: Timeout
		late          time.Duration
	}{
		{"none", nil, 0, 0, 0},
		{"first", []time.Duration{8 * ms}, 8 * ms, 24 * ms, 8 * ms},
		{"second, as in RFC 6298", []time.Duration{8 * ms, 16 * ms}, 9 * ms, 29 * ms, 16 * ms},
		{"enough", []time.Duration{8 * ms, 8 * ms, 8 * ms, 8 * ms, 8 * ms}, 8 * ms, 13062500, 0},
		{"late", []time.Duration{8 * ms, 8 * ms, 8 * ms, 8 * ms, 16 * ms}, 9 * ms, 22062500, 8 * ms},
		{"zero", []time.Duration{0}, 1, 1, 1},
		{"absurd", []time.Duration{time.Hour}, time.Minute, 3 * time.Minute, time.Minute},
	} {
		var r RoundTrip
		for _, s := range tc.samples {
			r.Add(0, s)
		}
		if r.Smoothed != tc.smoothed || r.Timeout() != tc.out || r.Late() != tc.late {
			t.Errorf("%s: smoothed %v, timeout %v, late %v; want %v, %v, %v", tc.name, r.Smoothed, r.Timeout(), r.Late(), tc.smoothed, tc.out, tc.late)
		}
	}
}

// TestRoundTripResumes: the delay of a link is known again at the first measurement of a new connection.
func TestRoundTripResumes(t *testing.T) {
	var old, next RoundTrip
	for range leastOf {
		old.Add(0, 8*ms)
	}
	next.Resume(&old)
	if next.Smoothed != 0 || next.Last != 0 {
		t.Errorf("%+v, want no measurement of the new connection", next)
	}
	if next.Add(0, 900*ms); next.Late() != 892*ms || next.Smoothed != 900*ms {
		t.Errorf("late %v, smoothed %v, want 892ms, 900ms", next.Late(), next.Smoothed)
	}
}

func TestLeaseOn(t *testing.T) {
	steady := func(rtt time.Duration) *RoundTrip {
		r := &RoundTrip{}
		for range 100 {
			r.Add(0, rtt)
		}
		return r
	}
	for _, tc := range []struct {
		rtt, every, least, want time.Duration
	}{
		{0, 200 * ms, 800 * ms, LeaseMost},
		{1 * ms, 200 * ms, 800 * ms, 800 * ms},
		{90 * ms, 200 * ms, 800 * ms, 800 * ms},
		{600 * ms, 200 * ms, 800 * ms, 1800 * ms},
		{5 * time.Second, 200 * ms, 800 * ms, LeaseMost},
		{5 * time.Second, 750 * ms, 4 * time.Second, 4 * time.Second},
	} {
		r := &RoundTrip{}
		if tc.rtt > 0 {
			r = steady(tc.rtt)
		}
		if got := LeaseOn(r, tc.every, tc.least); got < tc.want || got > tc.want+10*ms {
			t.Errorf("LeaseOn(round trip %v, every %v, least %v) = %v, want %v", tc.rtt, tc.every, tc.least, got, tc.want)
		}
	}
}

// TestSlow: a link is slow three seconds after all its measurements exceed the limit, also one that was fast
// before. It is fast again with the first measurement within the limit.
func TestSlow(t *testing.T) {
	for _, every := range []time.Duration{200 * ms, 750 * ms} {
		var r RoundTrip
		now := time.Duration(0)
		slowAfter := func() time.Duration {
			begin := now
			for now < begin+time.Minute && !r.Slow() {
				now += every
				r.Add(now, MaxRoundTrip+ms)
			}
			return now - begin
		}
		if got := slowAfter(); got < slowWindow || got > slowWindow+2*every {
			t.Errorf("every %v: slow after %v, want %v", every, got, slowWindow)
		}
		for range 20 {
			now += every
			if r.Add(now, MaxRoundTrip); r.Slow() {
				t.Errorf("every %v: slow with a measurement within the limit", every)
			}
		}
		if got := slowAfter(); got < slowWindow || got > 3*slowWindow {
			t.Errorf("every %v: a link that was fast is slow after %v, want at most %v", every, got, 3*slowWindow)
		}
	}
}
