package core

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// TestDirect: a message reaches only the member it names. Messages to unreachable members and too
// large messages are refused at once; messages for unknown states are counted and ignored.
func TestDirect(t *testing.T) {
	tb := newTable(t, group.Options{}, "a", "b", "c")
	tb.run(time.Second)
	a, b, c := tb.get("a"), tb.get("b"), tb.get("c")
	if !a.pages.Send("b", []byte("page")) {
		t.Error("Send() to a reachable member = false, want true")
	}
	tb.pump()
	if want := []string{"a:page"}; !slices.Equal(b.sink.hints, want) || len(c.sink.hints) > 0 {
		t.Errorf("b received %q and c %q, want %q and none", b.sink.hints, c.sink.hints, want)
	}
	if a.pages.Send("z", nil) || a.pages.Send("b", make([]byte, a.g.Opt.PageBytes+1)) {
		t.Error("Send() to an unknown member or of an oversized message = true, want false")
	}
	a.SetLink("b", false)
	if a.pages.Send("b", nil) {
		t.Error("Send() without a link = true, want false")
	}
	c.Receive("a", frameOf(group.KindDirect, 1, (&group.Direct{Name: []byte("tomorrow"), Version: 1}).Append(nil)))
	if n := c.Stats().Refused[group.RefusedState]; n != 1 || len(c.sink.hints) > 0 {
		t.Errorf("%d frames of unknown states counted and %q delivered, want 1 and none", n, c.sink.hints)
	}
}
