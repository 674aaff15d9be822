package scrape

import (
	"bytes"
	"testing"
	"testing/iotest"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestWorkOfPages: no page takes more than in proportion to its length, however it comes.
func TestWorkOfPages(t *testing.T) {
	for name, text := range map[string][3]string{
		"series":      {"", "vllm:num_requests_waiting{engine=\"0\"} 1\n", ""},
		"adapters":    {"", "vllm:lora_requests_info{running_lora_adapters=\"a,b,c\",max_lora=\"4\"} 1\n", ""},
		"a list":      {"vllm:lora_requests_info{running_lora_adapters=\"", "a,", "\"} 1\n"},
		"labels":      {"vllm:num_requests_waiting{", "a=\"b\",", "} 1\n"},
		"backslashes": {"vllm:num_requests_waiting{a=\"", "\\", "\"} 1\n"},
		"a line":      {"", "x", ""},
		"line ends":   {"", "\n", ""},
		"braces":      {"vllm:num_requests_waiting", "{", " 1\n"},
		"spaces":      {"vllm:num_requests_waiting", " ", " 1\n"},
		"remarks":     {"", "# HELP a b\n", ""},
	} {
		testkit.Linear(t, name, func(n int) func() {
			page := testkit.Repeated(n, text[0], text[1], text[2])
			return func() {
				for engine := range endpoint.EngineType(5) {
					_, _ = NewScanner().Scan(bytes.NewReader(page), engine)
				}
				_, _ = NewScanner().Scan(iotest.HalfReader(bytes.NewReader(page)), endpoint.EngineUnknown)
			}
		})
	}
}
