package answer

import (
	"strings"
	"testing"
)

// TestResponseID: the id of a stored response is found in answers split at any byte, and in no
// other text.
func TestResponseID(t *testing.T) {
	for _, c := range []struct{ name, kind, body, want string }{
		{"whole", typeJSON, `{"id":"resp_abc","created_at":1,"output":[{"id":"msg_1"}]}`, "resp_abc"},
		{"spaced", typeJSON, `{"object": "response", "id": "resp_abc", "x": 1}`, "resp_abc"},
		{"behind others", typeJSON, `{"output":[{"id":"msg_1","x":"y"}],"id":"resp_abc"}`, "resp_abc"},
		{"streamed", typeEvents, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_abc\",\"output\":[]}}\n\n", "resp_abc"},
		{"that before it", typeJSON, `{"previous_response_id":"resp_old","id":"resp_abc"}`, "resp_abc"},
		{"in a text", typeJSON, `{"text":"{\"id\":\"resp_abc\"}"}`, ""},
		{"a chat", typeJSON, `{"id":"chatcmpl-1","choices":[]}`, ""},
		{"too long", typeJSON, `{"id":"resp_` + strings.Repeat("a", 300) + `"}`, ""},
		{"too late", typeJSON, `{"x":"` + strings.Repeat("a", maxIDHead) + `","id":"resp_abc"}`, ""},
	} {
		for _, step := range []int{1, 7, len(c.body)} {
			var s Scan
			s.Open(c.kind, "")
			for at := 0; at < len(c.body); at += step {
				s.Write([]byte(c.body[at:min(at+step, len(c.body))]))
			}
			if got := s.ResponseID(); got != c.want {
				t.Errorf("%s in pieces of %d: %q, want %q", c.name, step, got, c.want)
			}
			if s.Reset(); s.ResponseID() != "" {
				t.Errorf("%s: an answer's id outlives it", c.name)
			}
		}
	}
}
