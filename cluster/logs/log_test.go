package logs

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/wire"
)

// nothing is a LogStore that holds nothing.
type nothing struct{}

func (nothing) Apply(Delta) error                      { return nil }
func (nothing) Reset(string, uint64)                   {}
func (nothing) Digest(string) Digest                   { return Digest{} }
func (nothing) Snapshot(string, int) ([][]byte, error) { return nil, nil }
func (nothing) Restore(string, [][]byte) error         { return nil }
func (nothing) Forget(string)                          {}
func (nothing) Assign(string, Role)                    {}

func TestSourcesAreBounded(t *testing.T) {
	l := NewSet(group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})).New("index", 1, nothing{}, LogOptions{})
	names := []string{"", string(make([]byte, 256)), "s1", "s1"}
	if left := l.SetSources(names); left != 2 || len(l.order) != 1 {
		t.Errorf("%d left out, %d known", left, len(l.order))
	}
	names = nil
	for i := range 20_000 {
		names = append(names, fmt.Sprintf("10.%d.%d.1:8000/0", i/256, i%256))
	}
	left := l.SetSources(names)
	for _, s := range l.order {
		s.pos = Position{Inc: 1 << 63, Next: 1 << 63, Lost: 1 << 62}
		s.digest = Digest{Count: 1 << 63, Xor: 1 << 63}
	}
	if n := len(l.fullDigest()); left == 0 || n > wire.MaxFrame {
		t.Errorf("%d left out; a digest takes %d bytes", left, n)
	}
}
