package commands

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/top"
)

// TestTopOnce prints frames of a group of two with a dead engine: the problem with code and action
// first, then the dead engine before the healthy one, then the replicas.
func TestTopOnce(t *testing.T) {
	s := openSession(t)
	s.add()
	s.add()
	r := s.replicas[0]
	for _, r := range s.replicas {
		testkit.Await(t, "ready", func() bool { return r.Status().State == "ready" })
	}
	testkit.Await(t, "group", func() bool { return len(r.Status().Members) == 2 })
	end, _ := placeNamed(t, r.ExtProcAddr().String(), "gold\x1b[2J\nFORGED", vocab.Name)
	defer end()
	if out := screen(t, r, "top", "--once", "--interval", "100ms"); strings.Contains(out, "warning") || !strings.Contains(out, "2 endpoints: 2 healthy") {
		t.Errorf("healthy group:\n%s", out)
	}
	dead := crash(t, s, 15*time.Second)
	testkit.Await(t, "engine out", func() bool { return strings.Contains(screen(t, r, "top", "--once", "--interval", "100ms"), "GV3001") })
	t.Setenv("COLUMNS", "160")
	out := screen(t, r, "top", "--once", "--interval", "100ms", "--admin", s.replicas[1].AdminAddr().String(), "--admin", "127.0.0.1:1")
	clean(t, "top --once", out)
	last := -1
	for _, part := range []string{"grapevine top  replica-", "problems", "errors 0.0/s", "(of 2 of 3 replicas)", "GV3001 warning: ", dead.Addr(), "  do: ", "GV8011 warning: ", "127.0.0.1:1", "2 endpoints: 1 healthy, 1 ", "ENDPOINT", "KNOWLEDGE", dead.Addr(), s.fleet.Engines()[0].Addr(), "REPLICA", "replica-0", "replica-1"} {
		at := strings.Index(out[last+1:], part)
		if at < 0 {
			t.Fatalf("no %q after byte %d of\n%s", part, last, out)
		}
		last += 1 + at
	}
	for line := range strings.SplitSeq(out, "\n") {
		if len(line) > 160 {
			t.Errorf("line of %d bytes: %s", len(line), line)
		}
	}
}

// TestTopOnceWithoutReplica exits with 1 and names the address.
func TestTopOnceWithoutReplica(t *testing.T) {
	var out bytes.Buffer
	root := newScreen(standard, &out, &out)
	root.SetArgs([]string{"top", "--once", "--interval", "100ms", "--admin", "127.0.0.1:1"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(out.String(), "GV8011") || !strings.Contains(out.String(), "127.0.0.1:1") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestTopSession drives top on a simulated terminal of 80 by 24 cells against a replica with a dead
// engine, with every key.
func TestTopSession(t *testing.T) {
	s := openSession(t)
	s.add()
	r := s.replicas[0]
	testkit.Await(t, "ready", func() bool { return r.Status().State == "ready" })
	alive, dead := s.fleet.Engines()[0], crash(t, s, 15*time.Second)
	v := openTop(t, r)
	v.await("problem", func(text string) bool {
		return strings.Contains(text, "GV3001 warning") && strings.Contains(text, "do: ") && before(text, "\n"+dead.Addr(), "\n"+alive.Addr())
	})
	// Colours: the dead engine's problem is yellow unless NO_COLOR is set.
	if fg, _, _ := v.styleOf("GV3001"); fg != tcell.ColorYellow {
		t.Errorf("problem is drawn in %v, want yellow", fg)
	}
	v.keys("?")
	v.await("help", func(text string) bool { return strings.Contains(text, "close this help") })
	v.keys("?jk")
	v.await("reason of the first endpoint", func(text string) bool { return strings.Contains(text, "\n"+dead.Addr()+" (out): ") })
	v.keys("s")
	v.await("sorting", func(text string) bool { return strings.Contains(text, "s sort: endpoint") })
	v.keys("S/" + alive.Addr())
	v.screen.InjectKey(tcell.KeyEnter, 0, 0)
	v.await("filter", func(text string) bool {
		return strings.Contains(text, "2 endpoints") && strings.Contains(text, "1 shown") && strings.Contains(text, "filter: "+alive.Addr())
	})
	v.screen.InjectKey(tcell.KeyEscape, 0, 0)
	v.await("no filter", func(text string) bool { return !strings.Contains(text, "1 shown") })
	v.keys("p")
	v.await("pause", func(text string) bool { return strings.Contains(text, "(paused)") })
	testkit.Await(t, "engine is back", func() bool { return !strings.Contains(screen(t, r, "top", "--once", "--interval", "100ms"), "GV3001") })
	if !strings.Contains(v.text(), "GV3001") {
		t.Errorf("a paused screen changed:\n%s", v.text())
	}
	v.keys("p")
	v.await("recovery", func(text string) bool { return !strings.Contains(text, "GV3001") })
	v.screen.SetSize(200, 50)
	v.await("wide screen", func(text string) bool { return strings.Contains(text, "MODELS") })
	v.keys("q")
	if err := <-v.done; err != nil {
		t.Error(err)
	}
}

// TestTopWithoutColours: NO_COLOR leaves the terminal's own colours.
func TestTopWithoutColours(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	s := openSession(t)
	s.add()
	crash(t, s, 5*time.Second)
	v := openTop(t, s.replicas[0])
	v.await("problem", func(text string) bool { return strings.Contains(text, "GV3001") })
	if fg, bg, _ := v.styleOf("GV3001"); fg != tcell.ColorDefault || bg != tcell.ColorDefault {
		t.Errorf("colours %v and %v with NO_COLOR", fg, bg)
	}
}

// crash takes the second engine down for a time.
func crash(t *testing.T, s *session, down time.Duration) *sim.Engine {
	e, ended := s.fleet.Engines()[1], make(chan error, 1)
	go func() { ended <- e.Restart(sim.RestartOptions{Down: down}) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// before reports whether the first a is before the first b.
func before(text, a, b string) bool {
	i, j := strings.Index(text, a), strings.Index(text, b)
	return i >= 0 && i < j
}

// terminal is a session of top on a simulated terminal.
type terminal struct {
	t      *testing.T
	screen tcell.SimulationScreen
	done   chan error
}

func openTop(t *testing.T, r *server.Server) *terminal {
	t.Helper()
	v := &terminal{t: t, screen: tcell.NewSimulationScreen("UTF-8"), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	v.screen.SetSize(80, 24)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v.done <- top.Run(ctx, top.Options{Addresses: []string{r.AdminAddr().String()}, Interval: 100 * time.Millisecond, Screen: v.screen})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return v
}

func (v *terminal) keys(keys string) {
	for _, r := range keys {
		v.screen.InjectKey(tcell.KeyRune, r, 0)
	}
}

// text returns the screen's lines.
func (v *terminal) text() string {
	cells, width, _ := v.screen.GetContents()
	var b strings.Builder
	for i, c := range cells {
		if i > 0 && i%width == 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(c.Runes))
	}
	return b.String()
}

// styleOf returns colours and attributes of the first cell of a text.
func (v *terminal) styleOf(part string) (fg, bg tcell.Color, attr tcell.AttrMask) {
	cells, width, _ := v.screen.GetContents()
	for i := range cells {
		var b strings.Builder
		for _, c := range cells[i:min(i+len(part), i-i%width+width)] {
			b.WriteString(string(c.Runes))
		}
		if b.String() == part {
			return cells[i].Style.Decompose()
		}
	}
	return tcell.ColorNone, tcell.ColorNone, 0
}

func (v *terminal) await(what string, ok func(text string) bool) {
	v.t.Helper()
	if !testkit.PollUntil(func() bool { return ok(v.text()) }) {
		v.t.Fatalf("%s is not shown:\n%s", what, v.text())
	}
}
