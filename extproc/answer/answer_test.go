package answer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// usageBodies are answers of the dialects and their usage.
var usageBodies = []struct {
	name, body string
	want       request.Usage
}{
	{"completions", `{"id":"x","choices":[{"text":"hi"}],"usage":{"prompt_tokens":10,"total_tokens":12,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}`,
		request.Usage{Seen: true, CachedSeen: true, PromptTokens: 10, OutputTokens: 2, CachedTokens: 8}},
	{"no details", `{"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":null}}`,
		request.Usage{Seen: true, PromptTokens: 10, OutputTokens: 2}},
	{"white space", "{\"usage\" \n: \t{ \"prompt_tokens\" : 1 }}",
		request.Usage{Seen: true, PromptTokens: 1}},
	{"stream", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
		request.Usage{Seen: true, PromptTokens: 3, OutputTokens: 1}},
	{"usage in every event", "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n",
		request.Usage{Seen: true, PromptTokens: 3, OutputTokens: 2}},
	{"responses", "event: response.completed\ndata: {\"response\":{\"output\":[{\"text\":\"{}\"}],\"usage\":{\"input_tokens\":20,\"input_tokens_details\":{\"cached_tokens\":16},\"output_tokens\":4}}}\n\n",
		request.Usage{Seen: true, CachedSeen: true, PromptTokens: 20, OutputTokens: 4, CachedTokens: 16}},
	{"messages", "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":30,\"output_tokens\":1}}}\n\n" +
		"event: message_delta\ndata: {\"usage\":{\"output_tokens\":9}}\n\n",
		request.Usage{Seen: true, CachedSeen: true, PromptTokens: 37, OutputTokens: 9, CachedTokens: 30}},
	{"text that looks like it", `{"choices":[{"text":"\"usage\":{\"prompt_tokens\":99}"}],"note":"usage","usage":{"prompt_tokens":1}}`,
		request.Usage{Seen: true, PromptTokens: 1}},
	{"braces in strings", `{"usage":{"note":"}\"}","prompt_tokens":4}}`,
		request.Usage{Seen: true, PromptTokens: 4}},
	{"a name that ends the same", `{"my_usage":{"prompt_tokens":9},"z":"usage"}`, request.Usage{}},
	{"another usage", `{"usage":{"cpu":3}}`, request.Usage{}},
	{"odd numbers", `{"usage":{"prompt_tokens":-5,"completion_tokens":"7"}}`, request.Usage{}},
	{"more than anybody has", `{"usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"cache_creation_input_tokens":1e300,"output_tokens":18446744073709551616}}`, request.Usage{}},
	{"none", `{"error":"no"}`, request.Usage{}},
	{"cut off", `{"usage":{"prompt_tokens":4`, request.Usage{}},
	{"too long", `{"usage":{"pad":"` + strings.Repeat("x", maxUsage) + `","prompt_tokens":4}}`, request.Usage{}},
	{"after one that is too long", `{"usage":{"pad":"` + strings.Repeat("x", maxUsage) + `"},"usage":{"prompt_tokens":4}}`,
		request.Usage{Seen: true, PromptTokens: 4}},
}

func TestUsage(t *testing.T) {
	for _, c := range usageBodies {
		var s usageScanner
		s.write([]byte(c.body))
		if got := s.result(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestUsageCutAnywhere cuts each body in two at every byte, and into single
// bytes.
func TestUsageCutAnywhere(t *testing.T) {
	var s usageScanner
	for _, c := range usageBodies {
		for cut := range len(c.body) {
			s.reset()
			s.write([]byte(c.body[:cut]))
			s.write([]byte(c.body[cut:]))
			if got := s.result(); got != c.want {
				t.Fatalf("%s cut at %d: %+v, want %+v", c.name, cut, got, c.want)
			}
		}
		s.reset()
		for i := range len(c.body) {
			s.write([]byte{c.body[i]})
		}
		if got := s.result(); got != c.want {
			t.Errorf("%s in bytes: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// FuzzScan: for any chunks of a body, the scan gives the same result and stays within its memory
// bounds.
func FuzzScan(f *testing.F) {
	for i, c := range usageBodies {
		f.Add([]byte(c.body), i*3+1, i%2 == 0)
	}
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata:[DONE]\n\n"), 3, true)
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, body []byte, cut int, events bool) {
		scan := func(size int) (*Scan, int, int) {
			s := &Scan{readable: true, events: events}
			tokens, firsts := 0, 0
			for rest := body; len(rest) > 0; {
				n := min(size, len(rest))
				k, first := s.Write(rest[:n])
				rest = rest[n:]
				tokens += k
				if first {
					firsts++
				}
			}
			return s, tokens, firsts
		}
		whole, tokens, firsts := scan(max(len(body), 1))
		parts, tokens2, firsts2 := scan(max(cut%64, 1))
		if whole.Usage() != parts.Usage() || tokens != tokens2 {
			t.Errorf("whole %+v %d, in parts %+v %d", whole.Usage(), tokens, parts.Usage(), tokens2)
		}
		if firsts > 1 || firsts2 > 1 {
			t.Errorf("the first token came %d and %d times", firsts, firsts2)
		}
		if len(parts.usage.held) > maxUsage || len(parts.id.head) > maxIDHead {
			t.Errorf("holds %d and %d bytes", len(parts.usage.held), len(parts.id.head))
		}
		if whole.ResponseID() != parts.ResponseID() {
			t.Errorf("identifiers %q and %q", whole.ResponseID(), parts.ResponseID())
		}
		var f textFinder
		if got, want := f.write(body[:min(len(body), maxHead-1)]), hasText(body[:min(len(body), maxHead-1)]); got != want {
			t.Errorf("text found: %v, want %v", got, want)
		}
	})
}

func TestEventCount(t *testing.T) {
	for body, want := range map[string]int{
		"": 0,
		"data: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: [DONE]\n\n": 2,
		"data:{\"a\":1}\r\n\r\ndata:[DONE]\r\n\r\n":              1,
		"event: x\ndata: {\"text\":\"data: no\"}\n\n: ping\n\n":  1,
		"data: \n\n":            0,
		"dat: x\n\nxdata: {}\n": 0,
		"data: {} data: {}\n":   1,
	} {
		for cut := range len(body) + 1 {
			var c eventCounter
			var f faultFinder
			if got := c.write([]byte(body[:cut]), &f) + c.write([]byte(body[cut:]), &f); got != want {
				t.Errorf("%q cut at %d: %d events, want %d", body, cut, got, want)
			}
		}
	}
}

// hasText reports whether p contains a text key with a non-empty value.
func hasText(p []byte) bool {
	for {
		i := bytes.IndexByte(p, ':')
		if i < 0 {
			return false
		}
		key, value := bytes.TrimRight(p[:i], " \t"), bytes.TrimLeft(p[i+1:], " \t")
		if len(key) > 1 && key[len(key)-1] == '"' && len(value) > 1 && value[0] == '"' && value[1] != '"' {
			open := bytes.LastIndexByte(key[:len(key)-1], '"')
			if open >= 0 && slices.Contains(textKeys[:], string(key[open+1:len(key)-1])) {
				return true
			}
		}
		p = p[i+1:]
	}
}

func TestFirstText(t *testing.T) {
	const role = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	for name, event := range map[string]string{
		"chat":       `data: {"choices":[{"delta":{"content":"Hi"}}]}`,
		"completion": `data: {"choices":[{"text": "Hi"}]}`,
		"reasoning":  `data: {"choices":[{"delta":{"reasoning_content":"Hm"}}]}`,
		"tool call":  `data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}`,
		"responses":  `data: {"type":"response.output_text.delta","delta":"Hi"}`,
		"messages":   `data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}`,
	} {
		for cut := range len(event) {
			var f textFinder
			if f.write([]byte(role)) {
				t.Fatalf("%s: the role counts as text", name)
			}
			early := f.write([]byte(event[:cut]))
			late := f.write([]byte(event[cut:]))
			if early == late {
				t.Errorf("%s cut at %d: found %t, then %t", name, cut, early, late)
			}
		}
	}
	var f textFinder
	if f.write([]byte(strings.Repeat(role, 10))) {
		t.Error("found text where there is none")
	}
	if !f.write([]byte(strings.Repeat(": ping\n\n", maxHead))) {
		t.Error("never gives up")
	}
}

// TestScanIsFree: a scan that is reused allocates nothing per chunk.
func TestScanIsFree(t *testing.T) {
	var s Scan
	chunk := []byte(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%q}}],\"usage\":null}\n\n", "word"))
	if n := testing.AllocsPerRun(100, func() {
		s.Reset()
		s.Open("text/event-stream", "")
		for range 10 {
			s.Write(chunk)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
