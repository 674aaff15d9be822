package answer

import (
	"fmt"
	"strings"
	"testing"
)

// TestEventsTwice: a stream with every event twice is a fault, also in chunks. One with different events, or
// with some that are equal, is none.
func TestEventsTwice(t *testing.T) {
	stream := func(texts ...string) string {
		var b strings.Builder
		for _, text := range texts {
			fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
		}
		return b.String() + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	}
	words := strings.Fields("the quick brown fox jumps over the lazy dog and sleeps again")
	var twice []string
	for _, w := range words {
		twice = append(twice, w, w)
	}
	for _, c := range []struct {
		name, body string
		want       Fault
	}{
		{"different events", stream(words...), Sound},
		{"every event twice", stream(twice...), Empty},
		{"a few events", stream("a", "a", "b", "b"), Sound},
		{"one event of three twice", stream("a", "b", "b", "c", "d", "e", "e", "f", "g", "h", "h", "i"), Sound},
	} {
		for _, size := range []int{len(c.body), 7, 1} {
			var s Scan
			s.Open(typeEvents, "")
			for at := 0; at < len(c.body); at += size {
				s.Write([]byte(c.body[at:min(at+size, len(c.body))]))
			}
			if got := s.Fault(); got != c.want {
				t.Errorf("%s in chunks of %d: %v, want %v", c.name, size, got, c.want)
			}
		}
	}
}
