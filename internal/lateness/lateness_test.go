package lateness

import (
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

func TestMeter(t *testing.T) {
	const interval = 50 * time.Millisecond
	for _, c := range []struct {
		name string
		late func(run int) time.Duration
		want time.Duration
	}{
		{"on time", func(int) time.Duration { return 0 }, 0},
		{"always late", func(int) time.Duration { return 300 * time.Millisecond }, 300 * time.Millisecond},
		{"a fifth of the runs late", func(n int) time.Duration {
			if n%5 == 0 {
				return time.Second
			}
			return 0
		}, 0},
		{"half of the runs late", func(n int) time.Duration {
			if n%2 == 0 {
				return time.Second
			}
			return 0
		}, time.Second},
		{"stopped once", func(n int) time.Duration {
			if n == 180 {
				return time.Minute
			}
			return time.Millisecond
		}, time.Millisecond},
		{"late until ten seconds ago", func(n int) time.Duration {
			if n < 100 {
				return time.Second
			}
			return 0
		}, 0},
	} {
		m, now, got := Meter{}, start, time.Duration(0)
		for n := range 300 {
			due := now.Add(interval)
			now = due.Add(c.late(n))
			got = m.Ran(now, due)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if n := len(m.runs); n > int(window/interval)+1 {
			t.Errorf("%s: %d runs are kept", c.name, n)
		}
	}
}

func TestMeterNeedsTime(t *testing.T) {
	m, now := Meter{}, start
	for now.Sub(start) < 2*time.Second {
		if got := m.Ran(now, now.Add(-350*time.Millisecond)); got != 0 {
			t.Fatalf("%v after %v, want 0", got, now.Sub(start))
		}
		now = now.Add(400 * time.Millisecond)
	}
}

// TestJudge runs each case for 30 seconds and expects the replica to be out at its end, or not.
func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		own    time.Duration
		others []time.Duration
		count  int
		want   bool
	}{
		{"late, the others are not", 500 * ms, []time.Duration{ms, ms}, 2, true},
		{"late, and so are the others", 500 * ms, []time.Duration{400 * ms, 300 * ms}, 2, false},
		{"late, one of two is not", 500 * ms, []time.Duration{ms, 400 * ms}, 2, true},
		{"late, one of three is not", 500 * ms, []time.Duration{ms, 400 * ms, 400 * ms}, 3, false},
		{"late, alone", 500 * ms, nil, 0, false},
		{"late, others do not report", 500 * ms, nil, 2, false},
		{"late, one of three reports", 500 * ms, []time.Duration{ms}, 3, false},
		{"below the limit", 150 * ms, []time.Duration{0, 0}, 2, false},
	} {
		var j Judge
		got := false
		for now := start; now.Sub(start) < 30*time.Second; now = now.Add(50 * ms) {
			got = j.Step(now, c.own, c.others, c.count)
			if got && now.Sub(start) < holdTime {
				t.Fatalf("%s: out after %v", c.name, now.Sub(start))
			}
		}
		if got != c.want {
			t.Errorf("%s: out %v, want %v", c.name, got, c.want)
		}
	}
}

// TestJudgeReturns: a replica returns when it has been on time for a while, or when nobody else has
// been ready for a while. It returns later each time that leaving did not help for long.
func TestJudgeReturns(t *testing.T) {
	const ms = time.Millisecond
	var j Judge
	now := start
	others := []time.Duration{ms}
	leave := func() {
		t.Helper()
		for n := 0; !j.Step(now, 500*ms, others, 1); n++ {
			if now = now.Add(50 * ms); n > 100 {
				t.Fatal("does not leave")
			}
		}
	}
	back := func() time.Duration {
		t.Helper()
		from := now
		for j.Step(now, 0, others, 1) {
			if now = now.Add(50 * ms); now.Sub(from) > 2*backMost {
				t.Fatal("does not return")
			}
		}
		return now.Sub(from)
	}
	want := backTime
	for range 8 {
		leave()
		if got := back(); got != want {
			t.Errorf("returned after %v, want %v", got, want)
		}
		want = min(2*want, backMost)
	}
	now = now.Add(2 * forget)
	leave()
	if got := back(); got != backTime {
		t.Errorf("returned after %v although it had not left for long, want %v", got, backTime)
	}
	leave()
	for range 1000 { // between the two limits
		if now = now.Add(50 * ms); !j.Step(now, 100*ms, others, 1) {
			t.Fatal("returned while it is late")
		}
	}
	from := now
	for ; j.Step(now, 500*ms, nil, 0); now = now.Add(50 * ms) {
		if now.Sub(from) > lostTime {
			t.Fatalf("out although no other replica has been ready for %v", now.Sub(from))
		}
	}
	if now.Sub(from) < lostTime {
		t.Errorf("returned after %v without contact", now.Sub(from))
	}
}
