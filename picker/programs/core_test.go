package programs

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/picker/sessions"
)

const second = int64(time.Second)

func turnOf(program, tenant sessions.Key, tokens int) Turn {
	return Turn{Program: program, Session: program, Tenant: tenant, Tokens: tokens, Most: 600 * second}
}

// placed begins a turn that must not be kept, and reports that its engine computes the whole prompt.
func placed(t *testing.T, c *Core, now int64, u Turn) uint64 {
	t.Helper()
	h, waits := c.Offer(now, u)
	if waits || h == 0 {
		t.Fatalf("turn of program %d: handle %d, kept %t", u.Program, h, waits)
	}
	c.Place(h, u.Tokens, u.Tokens)
	return h
}

// TestNewProgramsWait checks that a new program is kept while running ones fill the memory, and that their
// turns pass. The new one runs once a context has not returned in time.
func TestNewProgramsWait(t *testing.T) {
	c := NewCore()
	c.SetLimit(1000)
	first := placed(t, c, 0, turnOf(1, 1, 400))
	placed(t, c, 0, turnOf(2, 1, 500))
	late, waits := c.Offer(second, turnOf(3, 1, 600))
	if !waits {
		t.Fatal("a third program runs beyond the limit")
	}
	c.Release(2*second, first)
	again, waits := c.Offer(10*second, turnOf(1, 1, 450))
	if waits {
		t.Fatal("the oldest program is kept")
	}
	c.Release(11*second, again)
	c.Advance(11*second + returnWithin - second)
	if woken := c.Woken(nil); len(woken) != 0 {
		t.Fatal("the memory of a program counts for less than returnWithin")
	}
	c.Advance(11*second + returnWithin)
	if woken := c.Woken(nil); len(woken) != 1 || woken[0] != late {
		t.Errorf("woken %v, want %d", woken, late)
	}
}

// TestSharedPromptsCountOnce checks that the part of a prompt that an engine holds is not counted, and
// that later turns count by their growth.
func TestSharedPromptsCountOnce(t *testing.T) {
	c := NewCore()
	h, _ := c.Offer(0, turnOf(1, 1, 1000))
	c.Place(h, 1000, 100)
	c.Release(0, h)
	if got := c.Status().Footprint; got != 100 {
		t.Errorf("footprint %v, want 100", got)
	}
	h, _ = c.Offer(second, turnOf(1, 1, 1500))
	c.Place(h, 1500, 1500) // at another engine
	if got := c.Status().Footprint; got != 600 {
		t.Errorf("footprint %v, want 600", got)
	}
}

// TestTenantsShareMemory checks that a tenant with many programs cannot keep another tenant from running one,
// and that it keeps its memory if no other tenant waits.
func TestTenantsShareMemory(t *testing.T) {
	c := NewCore()
	c.SetLimit(1000)
	var flood []uint64
	for i := range sessions.Key(10) {
		flood = append(flood, placed(t, c, 0, turnOf(100+i, 1, 100)))
	}
	var kept []uint64
	for i := range sessions.Key(10) {
		h, waits := c.Offer(second, turnOf(200+i, 1, 100))
		if !waits {
			t.Fatalf("program %d of the flood runs beyond the limit", 200+i)
		}
		kept = append(kept, h)
	}
	other, waits := c.Offer(2*second, turnOf(300, 2, 100))
	if waits {
		t.Fatal("the other tenant's only program is kept behind a flood")
	}
	c.Place(other, 100, 100)
	// The flood's returning turns are bounded by its share: the oldest five fit beside five of tenant 2.
	for i := range sessions.Key(4) {
		h, waits := c.Offer(3*second+int64(i)*second, turnOf(301+i, 2, 100))
		if waits {
			t.Fatalf("program %d of the other tenant is kept, although it holds less than half", 301+i)
		}
		c.Place(h, 100, 100)
	}
	if _, waits := c.Offer(9*second, turnOf(305, 2, 100)); !waits {
		t.Error("the other tenant gets more than half of a full memory")
	}
	c.Release(10*second, flood[9])
	if _, waits := c.Offer(11*second, turnOf(109, 1, 150)); !waits {
		t.Error("the flood's youngest running program runs on beyond its share")
	}
	_ = kept
}

// TestNoTurnIsKeptForever checks the limit of a wait.
func TestNoTurnIsKeptForever(t *testing.T) {
	c := NewCore()
	c.SetLimit(1000)
	placed(t, c, 0, turnOf(1, 1, 900))
	u := turnOf(2, 1, 900)
	u.Most = 5 * second
	h, waits := c.Offer(second, u)
	c.Advance(6*second - 1)
	if early := c.Woken(nil); !waits || len(early) != 0 {
		t.Fatal("the turn is not kept")
	}
	c.Advance(7 * second)
	if woken := c.Woken(nil); len(woken) != 1 || woken[0] != h {
		t.Errorf("woken %v, want %d", woken, h)
	}
}

// TestStoredResponses checks that a turn without a session belongs to the session that stored the
// response which it continues.
func TestStoredResponses(t *testing.T) {
	c := NewCore()
	h := placed(t, c, 0, turnOf(1, 1, 500))
	c.Stored(h, 77)
	c.Release(0, h)
	h, _ = c.Offer(second, Turn{Program: 77, Session: 77, Previous: 77, Tokens: 700})
	c.Place(h, 700, 700)
	if st := c.Status(); st.Programs != 1 || st.Footprint != 700 {
		t.Errorf("%d programs with %v tokens, want 1 with 700", st.Programs, st.Footprint)
	}
}

// TestSeen checks that a session counts here while other replicas serve it, and not after their last report. Its
// first turn here joins it to its program.
func TestSeen(t *testing.T) {
	c := NewCore()
	h := placed(t, c, 0, turnOf(1, 1, 400))
	c.typical, c.shared = 300, 100
	c.Seen(0, 55)
	if st := c.Status(); st.Programs != 2 || st.Footprint != 700 {
		t.Errorf("%+v, want 2 programs with 700 tokens", st)
	}
	u := turnOf(1, 1, 900)
	u.Session = 55
	other, _ := c.Offer(second, u)
	c.Place(other, 900, 10)
	if st := c.Status(); st.Programs != 1 || st.Footprint != 400+800 {
		t.Errorf("%+v, want one program with 1200 tokens", st)
	}
	c.Release(2*second, h)
	c.Release(2*second, other)
	c.Seen(20*second, 55)
	c.Advance(100 * second)
	if got := c.Status().Footprint; got != 800 {
		t.Errorf("footprint %v, want 800 while another replica serves the session", got)
	}
	c.Advance(20*second + awayWithin)
	if got := c.Status().Footprint; got != 0 {
		t.Errorf("footprint %v, want 0", got)
	}
}

// TestBounded checks that programs beyond the bound pass and are counted, and that quiet programs are
// forgotten.
func TestBounded(t *testing.T) {
	c := NewCore()
	c.SetLimit(1)
	for i := range sessions.Key(maxPrograms + 5) {
		u := turnOf(i+1, 1, 10)
		u.Most = 0
		h, _ := c.Offer(0, u)
		if tracked := int(i) < maxPrograms; (h != 0) != tracked {
			t.Fatalf("program %d: handle %d", i, h)
		}
		c.Release(0, h)
	}
	if st := c.Status(); st.Untracked != 5 || st.Programs != maxPrograms {
		t.Errorf("%+v, want 5 untracked", st)
	}
	c.Advance(2 * keepFor)
	if st := c.Status(); st.Programs != 0 || len(c.sessions) != 0 || math.Abs(st.Footprint) > 1e-6 {
		t.Errorf("%+v and %d sessions after a long time", st, len(c.sessions))
	}
}

// TestCore checks for random turns that the footprint is the sum of the counted contexts, and that each turn is
// either kept or running. No turn is kept while nothing runs, and nothing remains at the end.
func TestCore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCore()
		c.SetLimit(float64(rapid.IntRange(1, 3000).Draw(t, "limit")))
		now := int64(0)
		waits, runs := map[uint64]bool{}, []uint64{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, 20*second).Draw(t, "passed")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 4:
				c.Seen(now, sessions.Key(rapid.IntRange(20, 250).Draw(t, "seen")))
			case 0, 1:
				program := sessions.Key(rapid.IntRange(1, 12).Draw(t, "program"))
				u := Turn{Program: program, Session: 20*program + sessions.Key(rapid.IntRange(0, 2).Draw(t, "session")), Tenant: program % 3, Tokens: rapid.IntRange(1, 900).Draw(t, "tokens"), Most: 100 * second}
				if h, kept := c.Offer(now, u); kept {
					waits[h] = true
				} else {
					c.Place(h, u.Tokens, rapid.IntRange(0, u.Tokens).Draw(t, "missing"))
					runs = append(runs, h)
				}
			case 2:
				if n := len(runs); n > 0 {
					at := rapid.IntRange(0, n-1).Draw(t, "which")
					c.Release(now, runs[at])
					c.Release(now, runs[at]) // a second release has no effect
					runs = append(runs[:at], runs[at+1:]...)
				}
			default:
				c.Advance(now)
			}
			for _, h := range c.Woken(nil) {
				if !waits[h] {
					t.Fatalf("turn %x is woken but was not kept", h)
				}
				delete(waits, h)
				runs = append(runs, h)
			}
			sum := 0.0
			for _, s := range c.sessions {
				if s.counted {
					sum += s.own
				}
			}
			if math.Abs(sum-c.own) > 1e-3 || c.kept != len(waits) {
				t.Fatalf("footprint %v, want %v; %d kept, want %d", c.own, sum, c.kept, len(waits))
			}
		}
		now += 200 * second
		for _, h := range runs {
			c.Release(now, h)
		}
		for h := range waits {
			c.Release(now, h)
		}
		c.Advance(now + 2*keepFor)
		if len(c.programs)+len(c.sessions)+c.kept != 0 || math.Abs(c.own) > 1e-3 {
			t.Fatalf("%d programs, %d sessions, %d kept, %v tokens remain", len(c.programs), len(c.sessions), c.kept, c.own)
		}
	})
}
