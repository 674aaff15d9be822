package plan

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// session is a plan and its simulated environment.
type session struct {
	plan  *Plan
	now   time.Duration
	facts Facts
}

// TestPlan runs the scripts in testdata, each the history of one event stream.
//
//	new [no-replay]     creates a plan
//	facts WORD ...      sets the current conditions: ready, settled, conflict, reader, standby,
//	                    kept, unclaimed, inc=N, next=N, wall=N, stalled=DURATION; others are
//	                    unset
//	at TIME             sets the clock and calls Advance
//	answer WORD ...     is the engine's page: started=N, block=N, failed; then Advance
//	connected | paged | restarted [wiped] | overtaken inc=N | distrusted
//
// The output lists the actions, the state, and when the plan is due again.
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &session{plan: New(true)}
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			words := map[string]string{}
			for _, a := range td.CmdArgs {
				words[a.Key] = strings.Join(a.Vals, "")
			}
			return s.step(t, td.Cmd, words, td)
		})
	})
}

func (s *session) step(t *testing.T, cmd string, words map[string]string, td *datadriven.TestData) string {
	t.Helper()
	has := func(w string) bool { _, ok := words[w]; return ok }
	switch cmd {
	case "new":
		*s = session{plan: New(!has("no-replay"))}
		return ""
	case "facts":
		s.facts = Facts{
			Ready: has("ready"), Settled: has("settled"), Conflict: has("conflict"), Wall: number(t, words["wall"]),
			Log: Log{
				Reader: has("reader"), Standby: has("standby"), Unclaimed: has("unclaimed"), HasStayingReader: has("kept"),
				Inc: number(t, words["inc"]), Next: number(t, words["next"]),
			},
		}
		if has("stalled") {
			s.facts.Stalled = duration(t, words["stalled"])
		}
		return ""
	case "at":
		s.now = duration(t, td.CmdArgs[0].Key)
	case "answer":
		s.plan.Answer(s.now, Answer{Started: number(t, words["started"]), Block: int(number(t, words["block"])), Failed: has("failed")}, s.facts)
	case "connected":
		s.plan.Connected()
	case "paged":
		s.plan.Paged()
	case "restarted":
		s.plan.Restarted(has("wiped"))
	case "overtaken":
		s.plan.Superseded(number(t, words["inc"]))
	case "distrusted":
		s.plan.Invalidated(s.now, s.facts.Log)
	default:
		t.Fatalf("unknown command %q", cmd)
	}
	return s.advance()
}

// TestAnswerComesWithRestart: the answer to an earlier request may arrive just as the stream
// reveals a gap. The stream, from which nothing more is accepted, is reopened anyway.
func TestAnswerComesWithRestart(t *testing.T) {
	const started = 1_700_000_000_000
	for _, wiped := range []bool{false, true} {
		s := session{plan: New(true), facts: Facts{Ready: true, Settled: true, Log: Log{Reader: true, Inc: started, Next: 500}}}
		s.advance()
		s.plan.Answer(0, Answer{Started: started}, s.facts)
		s.advance()
		s.now = time.Second
		if s.advance(); !s.plan.Reads() {
			t.Fatal("stream is not read")
		}
		s.plan.Connected()
		s.now = 10 * time.Second
		s.advance()
		s.plan.Restarted(wiped)
		s.plan.Answer(s.now, Answer{Started: started}, s.facts)
		var did []string
		for range 3 {
			do, _ := s.plan.Advance(s.now, s.facts)
			for _, a := range do {
				did = append(did, show(a))
			}
			s.now += time.Second
		}
		shut, open := -1, -1
		for i, a := range did {
			switch {
			case a == "shut":
				shut = i
			case strings.HasPrefix(a, "open"):
				open = i
			}
		}
		if shut < 0 || open < shut {
			t.Errorf("wiped = %v: actions %q", wiped, did)
		}
	}
}

func (s *session) advance() string {
	var out strings.Builder
	do, next := s.plan.Advance(s.now, s.facts)
	for _, a := range do {
		out.WriteString(show(a) + "\n")
	}
	p := s.plan
	fmt.Fprintf(&out, "= %v", p.Mode())
	if p.Inc() > 0 {
		fmt.Fprintf(&out, " %d", p.Inc())
	}
	if p.Reads() {
		out.WriteString(", reads")
	}
	if p.Listed() {
		out.WriteString(", listed")
	}
	if p.Suspect() > 0 {
		fmt.Fprintf(&out, ", suspect since %v", p.Suspect())
	}
	if next != Never {
		fmt.Fprintf(&out, "; due %v", next)
	}
	return out.String() + "\n"
}

func show(a Action) string {
	switch a.Kind {
	case Ask:
		return "ask"
	case Become:
		if a.Mode == Direct {
			return "become direct: " + a.Reason
		}
		return fmt.Sprintf("become %v %d", a.Mode, a.Inc)
	case Name:
		return fmt.Sprintf("name %d", a.Inc)
	case Open:
		if a.Cold {
			return "open from the beginning"
		}
		return "open"
	}
	return map[Kind]string{Shut: "shut", Renew: "renew", List: "list", Unlist: "unlist"}[a.Kind]
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
