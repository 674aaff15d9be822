package server

import (
	"reflect"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/server/roots"
)

// TestModelsAreKept: a model stays known while its engines restart, and its names are free for
// other models at once.
func TestModelsAreKept(t *testing.T) {
	f := modelFinder{seen: map[string]seenModel{}}
	start := time.Unix(1_800_000_000, 0)
	a := roots.Group{Root: "org/a", Names: []string{"a", "m"}, Adapters: []string{"sql"}}
	b := roots.Group{Root: "org/b", Names: []string{"m"}}
	for _, c := range []struct {
		after      time.Duration
		have, want []roots.Group
	}{
		{0, []roots.Group{a}, []roots.Group{a}},
		{modelKeep, nil, []roots.Group{a}},
		{modelKeep, []roots.Group{b}, []roots.Group{b, {Root: "org/a", Names: []string{"a"}, Adapters: []string{"sql"}}}},
		{modelKeep + time.Second, []roots.Group{b}, []roots.Group{b}},
		{3 * modelKeep, nil, nil},
	} {
		if got := f.keep(c.have, start.Add(c.after)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("keep() after %s = %+v, want %+v", c.after, got, c.want)
		}
	}
}
