package extproc

import (
	"encoding/json"
	"testing"

	"github.com/grapevine-epp/grapevine/picker"
)

func TestSplice(t *testing.T) {
	body := []byte(`{"a":1,"model":"m","z":[2]}`)
	span := [2]int{15, 18}
	for _, c := range []struct {
		d    picker.Decision
		want string
	}{
		{picker.Decision{ModelTarget: `n"x`}, `{"a":1,"model":"n\"x","z":[2]}`},
		{picker.Decision{BodyExtra: `,"b":{}`}, `{"a":1,"model":"m","b":{},"z":[2]}`},
		{picker.Decision{ModelTarget: "n", BodyExtra: `,"b":{}`}, `{"a":1,"model":"n","b":{},"z":[2]}`},
	} {
		got := splice(body, span, &c.d)
		if string(got) != c.want || !json.Valid(got) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got := splice(body, [2]int{20, 90}, &picker.Decision{ModelTarget: "n"}); string(got) != string(body) {
		t.Errorf("a span outside of the body changed it: %s", got)
	}
}
