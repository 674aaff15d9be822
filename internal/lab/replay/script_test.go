package replay

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// stage is a scripted fleet: endpoints e0, e1, … with requests in flight.
type stage struct {
	pool     *endpoint.Pool
	sessions *sessions.Table
	held     []int32
	rules    map[string]*picker.Rules
}

// Match implements picker.Matcher.
func (s *stage) Match(_ context.Context, _ *request.Request, _ []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k := range held {
		held[k].Run.Tokens[block.TierGPU] = s.held[k]
	}
}

// Chosen implements picker.Matcher.
func (s *stage) Chosen(*request.Request, *endpoint.Endpoint) {}

// Finished implements picker.Matcher.
func (s *stage) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {}

func newStage(n int) *stage {
	s := &stage{pool: endpoint.NewPool(endpoint.PoolOptions{}), sessions: sessions.New(0), held: make([]int32, n), rules: map[string]*picker.Rules{}}
	var specs []endpoint.Spec
	for i := range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)
		specs = append(specs, endpoint.Spec{Name: fmt.Sprintf("e%d", i), Addr: addr})
	}
	s.pool.Set(specs)
	return s
}

// engine sets the in-flight requests and the cache of an endpoint.
func (s *stage) engine(t *testing.T, line string) {
	t.Helper()
	var i, waiting, prefill, decoding, held int
	if _, err := fmt.Sscanf(line, "e%d waiting=%d prefill=%d decoding=%d held=%d", &i, &waiting, &prefill, &decoding, &held); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	ep, book := s.pool.Snapshot().Endpoints[i], s.pool.LoadTracker()
	for k := range waiting {
		n := prefill / waiting
		if k == 0 {
			n += prefill % waiting
		}
		book.Open(new(endpoint.Ticket), ep, endpoint.Work{Input: n, New: n}, epoch)
	}
	for range decoding {
		ticket := new(endpoint.Ticket)
		book.Open(ticket, ep, endpoint.Work{Input: 100, New: 0}, epoch)
		ticket.FirstToken(epoch)
	}
	s.held[i] = int32(held)
}

// pick asks a policy, and binds the session when told to.
func (s *stage) pick(t *testing.T, policy Policy, session string, input int) string {
	t.Helper()
	if s.rules[policy.Name] == nil {
		rules, err := policy.Rules()
		if err != nil {
			t.Fatal(err)
		}
		s.rules[policy.Name] = rules
	}
	r := &request.Request{Kind: request.KindCompletions, InputTokens: input, Session: session}
	c := cycle.New(cycle.Options{Pool: s.pool, Match: s.Match, Sessions: s.sessions, Now: epoch, Seed: 1}, r)
	defer c.Free()
	var plan cycle.Plan
	if err := s.rules[policy.Name].Handler.Handle(c, &plan); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("e%d", plan.Order[0])
}

// TestScriptedFleets shows each published policy's choice on fleets written
// down in testdata.
func TestScriptedFleets(t *testing.T) {
	var s *stage
	names := []string{"lmetric", "load_only", "sticky", "unified"}
	datadriven.RunTest(t, "testdata/policies.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "fleet":
			lines := strings.Split(d.Input, "\n")
			s = newStage(len(lines))
			for _, line := range lines {
				s.engine(t, line)
			}
			return ""
		case "bind":
			var session string
			var at int
			d.ScanArgs(t, "session", &session)
			d.ScanArgs(t, "to", &at)
			s.sessions.Bind(sessions.Binding{Session: sessions.KeyOf(session), Endpoint: s.pool.Snapshot().Endpoints[at].ID, At: epoch})
			return ""
		case "pick":
			var session string
			var input int
			d.ScanArgs(t, "session", &session)
			d.ScanArgs(t, "input", &input)
			var out strings.Builder
			for _, name := range names {
				p, err := PolicyByName(name)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&out, "%s: %s\n", name, s.pick(t, p, session, input))
			}
			return out.String()
		}
		t.Fatalf("command %q", d.Cmd)
		return ""
	})
}
