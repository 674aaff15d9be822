package facts

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// openDecisions returns n replicas. Replica i has a decision about the request "ri", and a replica in
// silent drops everything.
func openDecisions(t *testing.T, n int, silent int) []*Decisions {
	t.Helper()
	sinks := make([]cluster.FeedSink, n)
	var all []*Decisions
	for i := range n {
		d := NewDecisions(DecisionOptions{
			Find: func(id string) []byte {
				switch id {
				case fmt.Sprint("r", i), "everywhere":
					return []byte(fmt.Sprint("by ", i))
				case "large":
					return make([]byte, maxDecisionBytes+1)
				}
				return nil
			},
			Group: Group{Feed: func(name string, _ uint64, sink cluster.FeedSink) SendFunc {
				if name != stateDecisions {
					t.Errorf("feed %s", name)
				}
				sinks[i] = sink
				return func(payload []byte) bool {
					for k, s := range sinks {
						if k == i || k == silent {
							continue
						}
						if err := s.Deliver(fmt.Sprint("m", i), StateVersion, payload); err != nil {
							t.Error(err)
						}
					}
					return true
				}
			}},
		})
		all = append(all, d)
		go d.Run(t.Context())
	}
	return all
}

func found(answers []DecisionAnswer) string {
	var list []string
	for _, a := range answers {
		if a.Decision != nil {
			list = append(list, a.Member+" "+string(a.Decision))
		}
	}
	return strings.Join(list, ", ")
}

// TestAskDecisions: a replica gets the decision of the replica that made it, at once if all answer,
// and at the time limit if one is silent.
func TestAskDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := openDecisions(t, 3, -1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		for id, want := range map[string]string{"r1": "m1 by 1", "r2": "m2 by 2", "r9": "", "large": ""} {
			answers := all[0].Ask(ctx, id, []string{"m1", "m2"})
			if got := found(answers); got != want || len(answers) != 2 {
				t.Errorf("Ask(%s) = %q from %d replicas, want %q from 2", id, got, len(answers), want)
			}
		}
		if n := len(all[0].Ask(ctx, "everywhere", []string{"m1", "m2"})); n != 2 {
			t.Errorf("%d answers, want 2", n)
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("answers of all replicas took %s", d)
		}
		if all[0].Ask(ctx, "r1", nil) != nil {
			t.Error("a replica without members got an answer")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		all := openDecisions(t, 3, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		answers := all[0].Ask(ctx, "r2", []string{"m1", "m2"})
		if got := found(answers); got != "m2 by 2" || len(answers) != 1 || time.Since(begun) != time.Second {
			t.Errorf("%q from %d replicas after %s, want the answer of m2 after a second", got, len(answers), time.Since(begun))
		}
		if len(all[0].open) != 0 {
			t.Error("the question is still open")
		}
	})
}

// TestManyInquiries: questions that exceed the queue are dropped, and nothing blocks.
func TestManyInquiries(t *testing.T) {
	d := NewDecisions(DecisionOptions{Group: Group{Feed: func(string, uint64, cluster.FeedSink) SendFunc { return func([]byte) bool { return true } }}})
	for range 10 * maxInquiries {
		if err := d.Deliver("m", 1, append(appendNonce(wireInquiry, 1, 1), 'r')); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.asked) != maxInquiries {
		t.Errorf("%d questions wait, want %d", len(d.asked), maxInquiries)
	}
}

// FuzzDecisions delivers arbitrary bytes. They are refused, dropped or queued within the limits.
func FuzzDecisions(f *testing.F) {
	f.Add(append(appendNonce(wireInquiry, 1, 2), "r1"...))
	f.Add(append(appendNonce(wireAnswer, 1, 2), "{}"...))
	f.Add([]byte("q"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		d := NewDecisions(DecisionOptions{Group: Group{Feed: func(string, uint64, cluster.FeedSink) SendFunc { return func([]byte) bool { return true } }}})
		err := d.Deliver("m", 1, b)
		if valid := len(b) >= 9 && (b[0] == wireAnswer || b[0] == wireInquiry && len(b) <= 9+maxDecisionID); (err == nil) != valid {
			t.Fatalf("%x: %v", b, err)
		}
		if len(d.asked) > 1 || len(d.open) > 0 {
			t.Fatalf("%x: %d questions, %d open", b, len(d.asked), len(d.open))
		}
	})
}
