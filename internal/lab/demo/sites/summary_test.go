package sites

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestCount checks that requests count in the scene in which they began, and that requests in
// flight at B during a cut do not count as failed.
func TestCount(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	broke := errors.New("broke")
	ended := []answered{
		{begun: at(5), at: at(6), first: time.Second, engine: "a-1"},
		{begun: at(6), at: at(7), first: time.Second / 2, engine: "b-1"},
		{begun: at(7), at: at(8), err: broke},       // no cut during it
		{begun: at(9), at: at(21), err: broke},      // at B during the cut
		{begun: at(9.5), at: at(25), engine: "a-1"}, // not at B
		{begun: at(22), at: at(23), err: broke},     // began after the cut
	}
	b := map[string]bool{"b-1": true}
	helped := Scene{Helped: true, change: at(1), changed: at(1), begun: at(4), ended: at(10)}
	helped.count(ended, b, []time.Time{at(20)})
	if helped.Requests != 5 || helped.Failed != 1 || helped.AtB != 1 || helped.Broken != 0 || helped.TTFT90 != time.Second {
		t.Errorf("with import: %+v", helped)
	}
	cut := Scene{change: at(20), changed: at(20.1), begun: at(20.1), ended: at(30)}
	cut.count(ended, b, []time.Time{at(20)})
	if cut.Requests != 1 || cut.Failed != 1 || cut.Broken != 1 || cut.AtB != 0 {
		t.Errorf("link cut: %+v", cut)
	}
}

// TestVerdict checks that exactly the exceeded limits are reported.
func TestVerdict(t *testing.T) {
	good := func() *Summary {
		return &Summary{
			Hot: []HotScene{{Name: "pays", Asked: 10, AtB: 8, Must: true}, {Name: "does not", Asked: 10, AtB: 1}},
			Scenes: []Scene{
				{Name: "alone", Requests: 10, TTFT90: 2 * time.Second},
				{Name: "import", Requests: 10, AtB: 4, TTFT90: time.Second, Helped: true, Known: time.Second, Limit: time.Second},
			},
		}
	}
	if p := good().Problems(); len(p) != 0 {
		t.Errorf("a good run: %q", p)
	}
	for _, c := range []struct {
		change func(*Summary)
		want   string
	}{
		{func(s *Summary) { s.Hot[0].AtB = 7 }, "pays: 7 of 10 went to B, though that pays"},
		{func(s *Summary) { s.Hot[1].AtB = 2 }, "does not: 2 of 10 went to B, though that does not pay"},
		{func(s *Summary) { s.Hot[1].Failed = 1 }, "1 requests failed"},
		{func(s *Summary) { s.Scenes[0].Failed = 1 }, "alone: 1 requests failed that A could serve"},
		{func(s *Summary) { s.Scenes[1].TTFT90 += time.Millisecond }, "import: p90 of the first token is 1001 ms, not below half of 2000 ms"},
		{func(s *Summary) { s.Scenes[1].Known += time.Second }, "import: A knew after 2.0 s, later than 1s"},
		{func(s *Summary) { s.Scenes[1].AtB = 0 }, "import: B served nothing"},
		{func(s *Summary) { s.Scenes[0].AtB = 1 }, "alone: B served 1 requests, and could not be reached"},
		{func(s *Summary) { s.Scenes[0].Requests, s.Scenes[0].Least = 0, 1 }, "alone: 0 requests ended, of those offered at least 1 have to"},
	} {
		s := good()
		c.change(s)
		if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], c.want) {
			t.Errorf("%q, want %q", p, c.want)
		}
	}
}
