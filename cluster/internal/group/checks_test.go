package group

import (
	"slices"
	"testing"
)

func TestChecks(t *testing.T) {
	runs := []DeltaRun{{Source: []byte("a"), Inc: 1}, {Source: []byte("b"), Inc: 1}, {Source: []byte("c"), Inc: 1}}
	body := DeltasHead(make([]byte, HeaderLen), "index", 1, len(runs))
	for i := range runs {
		body = runs[i].Append(body)
	}
	body = Number{N: 7}.Append(body)
	for _, c := range []struct {
		what   string
		checks []Check
		bad    bool
	}{
		{"none", []Check{}, false},
		{"some", []Check{{0, 1}, {2, 1<<32 - 1}}, false},
		{"of no group", []Check{{3, 1}}, true},
		{"twice of one", []Check{{1, 1}, {1, 1}}, true},
		{"out of order", []Check{{2, 1}, {0, 1}}, true},
	} {
		var m Deltas
		err := m.Decode(Body(AppendChecks(slices.Clone(body), c.checks)))
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", c.what, err)
		}
		if !c.bad && (!slices.Equal(m.Checks, c.checks) || m.Number.N != 7) {
			t.Errorf("%s: read %v, number %d", c.what, m.Checks, m.Number.N)
		}
	}
	m := Deltas{Checks: []Check{{0, 1}}}
	if err := m.Decode(Body(body)); err != nil || len(m.Checks) != 0 {
		t.Errorf("message without checks: Checks = %v, err = %v", m.Checks, err)
	}
	short := AppendChecks(slices.Clone(body), []Check{{0, 1}})
	if m.Decode(Body(short[:len(short)-1])) == nil {
		t.Error("truncated check was accepted")
	}
}

// TestFold: different digests have different folds, for the digests tried here.
func TestFold(t *testing.T) {
	seen := map[uint32]Digest{}
	for i := range uint64(200) {
		for _, d := range []Digest{{i, 0}, {0, i + 1}, {i, 1 << 40 << (i % 20)}} {
			if other, ok := seen[d.Fold()]; ok && other != d {
				t.Errorf("%v and %v are alike", d, other)
			}
			seen[d.Fold()] = d
		}
	}
}
