package extproc

import (
	"encoding/json"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/request"
)

func TestSplice(t *testing.T) {
	body := []byte(`{"a":1,"model":"m","z":[2]}`)
	span := [2]int{15, 18}
	for _, c := range []struct {
		d    request.Decision
		want string
	}{
		{request.Decision{ModelTarget: `n"x`}, `{"a":1,"model":"n\"x","z":[2]}`},
		{request.Decision{BodyExtra: `,"b":{}`}, `{"a":1,"model":"m","b":{},"z":[2]}`},
		{request.Decision{ModelTarget: "n", BodyExtra: `,"b":{}`}, `{"a":1,"model":"n","b":{},"z":[2]}`},
	} {
		got := splice(&request.Request{Body: body, ModelSpan: span}, &c.d)
		if string(got) != c.want || !json.Valid(got) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got := splice(&request.Request{Body: body, ModelSpan: [2]int{20, 90}}, &request.Decision{ModelTarget: "n"}); string(got) != string(body) {
		t.Errorf("a span outside of the body changed it: %s", got)
	}
}

// A priority is written where the client set none, and in the place of the client's.
func TestSplicePriority(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m","z":[2]}`:                                          `{"model":"n","priority":-7,"b":{},"z":[2]}`,
		`{"priority": 100, "model":"m","z":[2]}`:                         `{"priority": -7, "model":"n","b":{},"z":[2]}`,
		`{"model":"m","priority":null,"z":[2]}`:                          `{"model":"n","b":{},"priority":-7,"z":[2]}`,
		`{"priority":1,"model":"m","priority" :"2","z":[2]}`:             `{"priority":1,"model":"n","b":{},"priority" :-7,"z":[2]}`,
		`{"prompt":"x"}`:                                                 `{"prompt":"x"}`,
		"\xef\xbb\xbf{\"model\":\"m\",\"priority\":9223372036854775807}": "\xef\xbb\xbf{\"model\":\"n\",\"b\":{},\"priority\":-7}",
	} {
		r := &request.Request{Path: "/v1/completions", Headers: headerView{}, Body: []byte(body)}
		_ = request.Parse(r) // one has no model
		got := splice(r, &request.Decision{ModelTarget: "n", BodyExtra: `,"b":{}`, Priority: -7, Prioritised: true})
		if string(got) != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
