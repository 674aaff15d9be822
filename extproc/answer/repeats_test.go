package answer

import (
	"fmt"
	"strings"
	"testing"
)

// streamOf is a chat's stream of pieces, with a finish reason unless it is cut.
func streamOf(cut bool, pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&b, "data: {\"id\":\"c-1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", p)
	}
	if !cut {
		b.WriteString("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n")
	}
	return b.String() + "data: [DONE]\n\n"
}

// TestFaultsOfText: repeated text and truncated answers are faults, at any chunking.
func TestFaultsOfText(t *testing.T) {
	words := strings.Fields(strings.Repeat("some words of an answer that says something ", 6))
	noise := strings.Split(strings.Repeat("!", 40), "")
	whole := func(text string) string {
		return fmt.Sprintf(`{"id":"c-1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"completion_tokens":5}}`, text)
	}
	sound := whole("some text")
	for _, c := range []struct {
		name, kind, body string
		want             Fault
	}{
		{"words", typeEvents, streamOf(false, words...), Sound},
		{"no finish reason known", typeEvents, "data: {\"choices\":[{\"text\":\"4\"}]}\n\ndata: [DONE]\n\n", Unfinished},
		{"noise", typeEvents, streamOf(false, noise...), Empty},
		{"noise after words", typeEvents, streamOf(false, append(words[:3:3], append(noise, append(noise, append(noise, append(noise, noise...)...)...)...)...)...), Empty},
		{"one word", typeEvents, streamOf(false, "yes"), Sound},
		{"few characters", typeEvents, streamOf(false, "aaaaaaaa"), Sound},
		{"a ruler within words", typeEvents, streamOf(false, append(append(words[:9:9], "----------------------------------------"), words...)...), Sound},
		{"new lines", typeEvents, streamOf(false, strings.Split(strings.Repeat("\n", 40), "")...), Empty},
		{"without a finish reason", typeEvents, streamOf(true, words...), Unfinished},
		{"whole", "application/json", sound, Sound},
		{"whole, with a line feed", "application/json", sound + "\n", Sound},
		{"whole noise", "application/json", whole(strings.Repeat("!", 40)), Empty},
		{"half of a document", "application/json", sound[:len(sound)/2], Broken},
		{"a document with repeated names", "application/json", strings.Replace(sound, "some text", `{\"a\":\"b\"}`, 1), Sound},
	} {
		for _, size := range []int{1, 7, 61, 1 << 20} {
			var s Scan
			s.Open(c.kind, "")
			for p := []byte(c.body); len(p) > 0; {
				n := min(size, len(p))
				s.Write(p[:n])
				p = p[n:]
			}
			if got := s.Fault(); got != c.want {
				t.Errorf("%s in chunks of %d: fault %d, want %d", c.name, size, got, c.want)
			}
		}
	}
}

// BenchmarkScanStream reads a sampled stream of 200 tokens.
func BenchmarkScanStream(b *testing.B) {
	chunk := []byte("data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"some/model\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n")
	var s Scan
	for b.Loop() {
		s.Reset()
		s.Open(typeEvents, "")
		for range 200 {
			s.Write(chunk)
		}
	}
}
