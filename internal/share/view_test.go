package share

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// What a stream that is being opened does not know takes nothing away from what members
// that read it tell, and what is told of a stream that nobody else reads is no better than
// what was read.
func TestJoint(t *testing.T) {
	for _, c := range []struct {
		what           string
		read, log      knowledge.State
		direct, backed bool
		want           knowledge.State
	}{
		{"taken over from another reader", knowledge.CatchingUp, knowledge.Exact, false, true, knowledge.Exact},
		{"read by nobody else", knowledge.CatchingUp, knowledge.Exact, false, false, knowledge.CatchingUp},
		{"not connected, read by nobody else", knowledge.Approximate, knowledge.Exact, false, false, knowledge.Approximate},
		{"went on from the log's position", knowledge.Partial, knowledge.Exact, false, false, knowledge.Exact},
		{"the log lost something", knowledge.Exact, knowledge.Partial, false, false, knowledge.Partial},
		{"another reader, and a rank that is not shared", knowledge.CatchingUp, knowledge.Exact, true, true, knowledge.CatchingUp},
		{"a rank that is not shared and not complete", knowledge.Partial, knowledge.Exact, true, false, knowledge.Partial},
	} {
		if got := joint(c.read, c.log, c.direct, c.backed); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
