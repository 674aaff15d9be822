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
		{"first", []time.Duration{8 * ms}, 8 * ms, 24 * ms, 0},
		{"second, as in RFC 6298", []time.Duration{8 * ms, 16 * ms}, 9 * ms, 29 * ms, 8 * ms},
		{"zero", []time.Duration{0}, 1, 1, 0},
		{"absurd", []time.Duration{time.Hour}, time.Minute, 3 * time.Minute, 0},
	} {
		var r RoundTrip
		for _, s := range tc.samples {
			r.Add(s)
		}
		if r.Smoothed != tc.smoothed || r.Timeout() != tc.out || r.Late() != tc.late {
			t.Errorf("%s: smoothed %v, timeout %v, late %v; want %v, %v, %v", tc.name, r.Smoothed, r.Timeout(), r.Late(), tc.smoothed, tc.out, tc.late)
		}
	}
}

func TestLeaseOn(t *testing.T) {
	steady := func(rtt time.Duration) *RoundTrip {
		r := &RoundTrip{}
		for range 100 {
			r.Add(rtt)
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

// TestSlow: a link is slow once even the least of 20 measurements exceeds the limit. The first ones
// include the queues of a new connection.
func TestSlow(t *testing.T) {
	var r RoundTrip
	for n := 1; n <= 2*slowSamples; n++ {
		r.Add(MaxRoundTrip + time.Millisecond)
		if got, want := r.Slow(), n >= slowSamples; got != want {
			t.Fatalf("after %d measurements over the limit: slow %v, want %v", n, got, want)
		}
	}
	if r.Add(MaxRoundTrip); r.Slow() {
		t.Error("slow with a measurement within the limit")
	}
}
