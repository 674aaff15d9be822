package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// script is a Set driven by testdata: each replica-less command feeds evidence
// of one endpoint, and "run" steps the set every 100 ms.
type script struct {
	set *Set
	now time.Time
	eps map[int]*Evidence // of this replica
	// Of each endpoint, per 100 ms: requests that end well, badly, and probes.
	flow map[int]*flow
}

type flow struct {
	good   int
	bad    int
	cause  Cause
	probe  string // "", passed, missed: the result of each probe that the set wants
	dead   bool   // the page does not answer
	stuck  bool   // nothing moves
	refuse bool
	slow   bool
	over   int           // overdue
	moves  time.Duration // something moves so often, although no request ends; 0: nothing does
	pages  time.Duration // its page is read only so often; 0: always
}

func newScript() *script {
	return &script{set: NewSet(Options{}), now: time.Unix(1000, 0), eps: map[int]*Evidence{}, flow: map[int]*flow{}}
}

const tick = 100 * time.Millisecond

// step runs one tick and returns the lines of its changes.
func (s *script) step() (lines []string) {
	s.now = s.now.Add(tick)
	for id := range len(s.eps) {
		e, f := s.eps[id], s.flow[id]
		e.Good += uint64(f.good)
		if f.cause != None {
			e.Bad[f.cause] += uint64(f.bad)
		}
		e.Answered, e.Moved = age(e.Answered, tick), age(e.Moved, tick)
		now := s.now.Sub(time.Unix(1000, 0))
		if !f.dead && !f.refuse && (f.pages == 0 || now%f.pages == 0) {
			e.Answered = 0
		}
		if f.moves > 0 && now%f.moves == 0 {
			e.Moved = 0
		}
		if !f.stuck && (f.good > 0 || f.bad > 0) {
			e.Moved = 0
		}
		e.Refused, e.Slow, e.Overdue, e.InFlight = f.refuse, f.slow, f.over, f.over
		if s.set.Probe(id, 0, s.now) {
			switch f.probe {
			case "passed":
				e.Passed++
				e.Moved = 0 // the engine was seen to work
			case "missed":
				e.Missed++
			case "denied":
				e.Denied++
			}
		}
		s.set.Receive("", id, *e, s.now)
	}
	for _, c := range s.set.Step(s.now) {
		lines = append(lines, fmt.Sprintf("%5.1fs  %d: %s -> %s (%s)", s.now.Sub(time.Unix(1000, 0)).Seconds(), c.ID, c.From, c.To.State, c.To.Cause))
	}
	return lines
}

func (s *script) cmd(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "pool":
		var n int
		d.ScanArgs(t, "n", &n)
		for id := range n {
			s.eps[id], s.flow[id] = &Evidence{Answered: Never, Moved: Never}, &flow{good: 1}
			s.set.Join(id, "model", s.now)
		}
		return ""
	case "flow":
		return s.change(t, d)
	case "run":
		var span string
		d.ScanArgs(t, "for", &span)
		dur, err := time.ParseDuration(span)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for range int(dur / tick) {
			lines = append(lines, s.step()...)
		}
		return strings.Join(append(lines, ""), "\n")
	case "renew":
		var id int
		d.ScanArgs(t, "ep", &id)
		s.eps[id] = &Evidence{}
		s.set.Renew(id, s.now)
		return ""
	case "pause":
		s.now = s.now.Add(5 * time.Second)
		for _, e := range s.eps {
			e.Answered, e.Moved = age(e.Answered, 5*time.Second), age(e.Moved, 5*time.Second)
		}
		return ""
	case "show":
		return s.show()
	}
	d.Fatalf(t, "unknown command")
	return ""
}

// change sets how endpoints behave; an argument without a number is a switch.
func (s *script) change(t *testing.T, d *datadriven.TestData) string {
	var id int
	d.ScanArgs(t, "ep", &id)
	f := &flow{good: 1}
	for _, a := range d.CmdArgs {
		n := 1
		if len(a.Vals) == 1 && a.Key != "probe" && a.Key != "moves" && a.Key != "pages" {
			if _, err := fmt.Sscan(a.Vals[0], &n); err != nil {
				t.Fatal(err)
			}
		}
		switch a.Key {
		case "good":
			f.good = n
		case "dead":
			f.dead = true
		case "stuck":
			f.stuck = true
		case "refuse":
			f.refuse = true
		case "slow":
			f.slow = true
		case "overdue":
			f.over = n
		case "probe":
			f.probe = a.Vals[0]
		case "moves", "pages":
			every, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			if f.pages = every; a.Key == "moves" {
				f.pages, f.moves = 0, every
			}
		case "ep":
		default:
			for c := range NumCauses {
				if c.String() == a.Key {
					f.cause, f.bad = c, n
				}
			}
			if f.cause == None {
				d.Fatalf(t, "unknown argument %s", a.Key)
			}
		}
	}
	s.flow[id] = f
	return ""
}

func (s *script) show() string {
	var b strings.Builder
	snap := s.set.Snapshot()
	for id := range len(s.eps) {
		v := snap.View(id)
		fmt.Fprintf(&b, "%d: %s", id, v.State)
		if v.State != Healthy {
			fmt.Fprintf(&b, ", %s: %s; back by %s", v.Cause, v.Evidence(), v.Remedy())
		}
		fmt.Fprintf(&b, "; share %d", v.Share)
		if v.Overruled {
			b.WriteString(" (overruled)")
		}
		b.WriteByte('\n')
	}
	for _, t := range snap.GroupProblems {
		fmt.Fprintf(&b, "group %s is in trouble: %d of %d away, evidence against %d ignored, %.0f%% fail\n", t.Group, t.Unhealthy, t.Endpoints, t.Ignored, 100*t.Failing)
	}
	return b.String()
}

// TestScripts plays testdata; -rewrite regenerates it.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.cmd(t, d) })
	})
}
