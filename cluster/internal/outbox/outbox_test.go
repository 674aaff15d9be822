package outbox

import (
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

func all(q *Queue[int]) (got []int) {
	q.Pop(func(v int) bool { got = append(got, v); return true })
	return got
}

func TestQueue(t *testing.T) {
	q := New[int](10)
	q.Push(group.Live, 1, 1)
	if got := all(q); got != nil {
		t.Errorf("closed queue kept %v, want nothing", got)
	}
	q.SetOpen(true)
	q.Push(group.Bulk, 1, 6)
	q.Push(group.Bulk, 2, 6) // no room
	q.Push(group.Live, 3, 6)
	q.Push(group.Live, 4, 4)
	if items, bytes, dropped := q.Stats(); items != 3 || bytes != 16 || dropped != 2 {
		t.Errorf("stats %d %d %d", items, bytes, dropped)
	}
	var first int
	q.Pop(func(v int) bool { first = v; return false })
	if got := all(q); first != 3 || !slices.Equal(got, []int{4, 1}) {
		t.Errorf("popped %d, then %v", first, got)
	}
	q.Push(group.Live, 5, 1)
	q.SetOpen(false)
	if got := all(q); got != nil {
		t.Errorf("closing kept %v", got)
	}
	select {
	case <-q.Ready():
	default:
		t.Error("not ready after a push")
	}
}
