package roots

import (
	"reflect"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestOf: names with the same source are one model; conflicts are decided by majority.
func TestOf(t *testing.T) {
	list := func(models ...endpoint.Model) *endpoint.ModelList { return &endpoint.ModelList{Models: models} }
	base := func(name, root string) endpoint.Model { return endpoint.Model{Name: name, Root: root} }
	lora := func(name, parent string) endpoint.Model {
		return endpoint.Model{Name: name, Parent: parent, Root: "/adapters/x"}
	}
	for name, c := range map[string]struct {
		lists      []*endpoint.ModelList
		configured string
		want       []Group
	}{
		"served names":      {lists: []*endpoint.ModelList{list(base("b", "org/m"), base("a", "org/m")), list(base("c", "org/m"))}, want: []Group{{Root: "org/m", Names: []string{"a", "b", "c"}}}},
		"without a source":  {lists: []*endpoint.ModelList{list(base("org/m", ""))}, want: []Group{{Root: "org/m"}}},
		"an adapter":        {lists: []*endpoint.ModelList{list(base("m", "org/m"), lora("sql", "m"))}, want: []Group{{Root: "org/m", Names: []string{"m"}, Adapters: []string{"sql"}}}},
		"an adapter alone":  {lists: []*endpoint.ModelList{list(lora("sql", "org/m"))}, want: []Group{{Root: "org/m", Adapters: []string{"sql"}}}},
		"majority":          {lists: []*endpoint.ModelList{list(base("m", "evil/m")), list(base("m", "org/m")), list(base("m", "org/m"))}, want: []Group{{Root: "org/m", Names: []string{"m"}}}},
		"a tie":             {lists: []*endpoint.ModelList{list(base("m", "org/b")), list(base("m", "org/a"))}, want: []Group{{Root: "org/a", Names: []string{"m"}}}},
		"name of another":   {lists: []*endpoint.ModelList{list(base("org/m", "evil/m")), list(base("m", "org/m"))}, want: []Group{{Root: "evil/m"}, {Root: "org/m", Names: []string{"m"}}}},
		"adapter of a base": {lists: []*endpoint.ModelList{list(base("m", "org/m")), list(lora("m", "n"))}, want: []Group{{Root: "n"}, {Root: "org/m", Names: []string{"m"}}}},
		"configured":        {lists: []*endpoint.ModelList{list(base("m", "org/m"), lora("sql", "m")), list(base("n", "org/n"))}, configured: "m", want: []Group{{Root: "org/n", Names: []string{"n"}}}},
		"nothing":           {},
	} {
		got := Of(c.lists, func(name string) bool { return name == c.configured })
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: Of() = %+v, want %+v", name, got, c.want)
		}
	}
}
