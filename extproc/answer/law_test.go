package answer

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfAnswers: no answer takes more than in proportion to its length, in one message or
// byte by byte.
func TestWorkOfAnswers(t *testing.T) {
	for name, text := range map[string][3]string{
		"events":            {"", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "data: [DONE]\n\n"},
		"empty events":      {"", "data:\n\n", ""},
		"a line":            {"data: {\"choices\":[{\"delta\":{\"content\":\"", "a", ""},
		"line ends":         {"", "\r\n", ""},
		"usage over again":  {"", "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n", ""},
		"usage inside":      {"data: ", "{\"usage\":", ""},
		"quotes":            {"{\"a\":", "\"usage\"", ""},
		"backslashes":       {"{\"a\":\"", "\\", "\"}"},
		"identifiers":       {"{", "\"id\":\"resp_1\",\"model\":\"m\",", "\"z\":0}"},
		"errors":            {"", "data: {\"error\":{\"code\":500}}\n\n", ""},
		"nested":            {"{\"a\":", "[", ""},
		"what is no stream": {"", "x", ""},
	} {
		for _, kind := range []string{typeEvents, typeJSON} {
			for size, cut := range map[int]string{1: "byte by byte", 1 << 30: "whole"} {
				testkit.Linear(t, name+", "+kind+", "+cut, func(n int) func() {
					body := testkit.Repeated(n, text[0], text[1], text[2])
					return func() {
						var s Scan
						var r Rename
						s.Open(kind, "")
						r.Open(kind, "", "another")
						for rest := body; len(rest) > 0; rest = rest[min(size, len(rest)):] {
							part := rest[:min(size, len(rest))]
							s.Write(part)
							r.Write(part)
						}
						s.Usage()
						s.Fault()
					}
				})
			}
		}
	}
}
