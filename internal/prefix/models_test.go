package prefix

import (
	"fmt"
	"testing"
)

// A name of two different things is refused.
func TestModelNamesAreDistinct(t *testing.T) {
	f := func(want string, list ...ModelOptions) {
		t.Helper()
		err := distinct(list)
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != "prefix: "+want {
			t.Errorf("%v: %v, want %q", list, err, want)
		}
	}
	f("", ModelOptions{Name: "a", Aliases: []string{"x"}, Adapters: []string{"y"}}, ModelOptions{Name: "b", Aliases: []string{"z"}})
	f(`"a" is configured twice: as a model and as a model`, ModelOptions{Name: "a"}, ModelOptions{Name: "a"})
	f(`"a" is configured twice: as a model and as an alias of b`, ModelOptions{Name: "a"}, ModelOptions{Name: "b", Aliases: []string{"a"}})
	f(`"x" is configured twice: as an adapter of a and as an adapter of b`, ModelOptions{Name: "a", Adapters: []string{"x"}}, ModelOptions{Name: "b", Adapters: []string{"x"}})
}
