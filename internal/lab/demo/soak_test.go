package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// samples returns 25 minutes of samples of two replicas. The second replica's samples follow grow.
func samples(grow func(at time.Duration) SoakSample) *SoakSummary {
	s := &SoakSummary{Replicas: 2, Length: 25 * time.Minute}
	for i := range 300 {
		at := time.Duration(i+1) * 5 * time.Second
		noise := int64(i%3) << 20
		flat, own := SoakSample{At: at, RSS: 60<<20 + noise, Goroutines: 80 + i%5}, grow(at)
		own.At, own.Replica, own.RSS = at, 1, own.RSS+noise
		s.Samples = append(s.Samples, flat, own)
	}
	return s
}

func TestSoakVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		grow func(time.Duration) SoakSample
		want []string
	}{
		"flat": {func(time.Duration) SoakSample { return SoakSample{RSS: 60 << 20, Goroutines: 80} }, nil},
		"grows until decisions are dropped": {func(at time.Duration) SoakSample {
			return SoakSample{RSS: min(int64(at.Seconds()), 660) << 20, Goroutines: 80}
		}, nil},
		"shrinks": {func(at time.Duration) SoakSample {
			return SoakSample{RSS: 1900<<20 - int64(at.Seconds())<<20, Goroutines: 1900 - int(at.Seconds())}
		}, nil},
		"leaks memory": {func(at time.Duration) SoakSample {
			return SoakSample{RSS: 60<<20 + int64(at.Seconds())<<15, Goroutines: 80}
		}, []string{"replica-2: resident memory"}},
		"leaks in the heap's shadow": {func(at time.Duration) SoakSample {
			return SoakSample{RSS: 60 << 20, Live: 20<<20 + int64(at.Seconds())<<14, Goroutines: 80}
		}, []string{"replica-2: live heap"}},
		"leaks goroutines": {func(at time.Duration) SoakSample {
			return SoakSample{RSS: 60 << 20, Goroutines: 80 + int(at.Seconds()/10)}
		}, []string{"replica-2: 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := samples(c.grow).Problems()
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("%q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

// TestShortSoak checks that memory is not judged while decisions are not old enough to be dropped, and that the
// output says so.
func TestShortSoak(t *testing.T) {
	for length, judged := range map[time.Duration]bool{14 * time.Minute: false, 15 * time.Minute: true} {
		s := samples(func(at time.Duration) SoakSample {
			return SoakSample{RSS: int64(at.Seconds()) << 20, Live: int64(at.Seconds()) << 19, Goroutines: 80}
		})
		s.Length = length
		var out bytes.Buffer
		s.Write(&out)
		if got := len(s.Problems()); got > 0 != judged || strings.Contains(out.String(), "not judged") == judged {
			t.Errorf("%s: %d problems, want judged: %v\n%s", length, got, judged, &out)
		}
	}
}

// TestSoakMissesSamples checks that a few missing samples are accepted, and many are not.
func TestSoakMissesSamples(t *testing.T) {
	s := samples(func(time.Duration) SoakSample { return SoakSample{RSS: 60 << 20, Goroutines: 80} })
	rounds := len(s.Samples) / s.Replicas
	if s.Missed = rounds / 20; len(s.Problems()) > 0 {
		t.Errorf("%q", s.Problems())
	}
	if s.Missed = rounds; len(s.Problems()) != 1 {
		t.Errorf("%q", s.Problems())
	}
}

// TestSoakFalseAlarm checks that an engine that is taken out of service without a restart is a problem.
func TestSoakFalseAlarm(t *testing.T) {
	s := samples(func(time.Duration) SoakSample { return SoakSample{RSS: 60 << 20, Goroutines: 80} })
	s.Alarms = []string{"replica-1 took 127.0.0.1:8000 out of service after 3s: late"}
	if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], s.Alarms[0]) {
		t.Errorf("%q, want the alarm", p)
	}
}

// TestSoak checks that a short soak has samples of every replica, evictions and restarts.
func TestSoak(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s, err := RunSoak(t.Context(), Options{Options: rig.Options{Envoy: parts.Envoy(t), Self: program(t), Engines: 4, Replicas: 3}, Out: &out, Step: 4 * time.Second})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if len(s.Samples) < 3 || s.Restarts < 1 || s.Requests < 1 || s.Failed == s.Requests || s.Stored == 0 {
		t.Errorf("%d samples, %d restarts, %d of %d requests failed, %d blocks stored", len(s.Samples), s.Restarts, s.Failed, s.Requests, s.Stored)
	}
	for _, x := range s.Samples {
		if x.RSS == 0 || x.Live == 0 || x.Goroutines == 0 {
			t.Fatalf("%+v", x)
		}
	}
	if s.Write(&out); !strings.Contains(out.String(), "replica-3 ") {
		t.Errorf("got\n%s", out.String())
	}
}
