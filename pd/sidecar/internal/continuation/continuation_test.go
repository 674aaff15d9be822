package continuation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

func parse(t *testing.T, text string) kvtransfer.Object {
	t.Helper()
	o, err := kvtransfer.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNew(t *testing.T) {
	const chat, text = `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true`, `{"model":"m","prompt":"x","stream":true`
	for _, c := range []struct {
		format *kvtransfer.Format
		body   string
		want   Reason
	}{
		{kvtransfer.Chat, chat + `,"temperature":0}`, ""},
		{kvtransfer.Chat, chat + `,"temperature":0.0,"max_tokens":5,"n":1,"stop":null,"tools":[],"logprobs":false,"stream_options":{"include_usage":true}}`, ""},
		{kvtransfer.Chat, chat + `,"temperature":1,"seed":7}`, ""},
		{kvtransfer.Completions, text + `,"temperature":0,"stop":[],"frequency_penalty":0.0,"unknown":null}`, ""},
		{kvtransfer.Completions, `{"prompt":[1,2],"stream":true,"temperature":0}`, ""},
		{kvtransfer.Chat, chat + `,"temperature":0,"tools":[{"type":"function"}],"tool_choice":"none"}`, ""},
		{kvtransfer.Chat, chat + `,"temperature":0,"response_format":{"type":"text"}}`, ""},

		{kvtransfer.Messages, chat + `,"temperature":0}`, API},
		{kvtransfer.Responses, chat + `,"temperature":0}`, API},
		{kvtransfer.Generate, text + `,"temperature":0}`, API},
		{kvtransfer.Chat, chat + `}`, Sampling},
		{kvtransfer.Chat, chat + `,"temperature":0.7}`, Sampling},
		{kvtransfer.Chat, chat + `,"temperature":0.7,"seed":null}`, Sampling},
		{kvtransfer.Chat, chat + `,"temperature":0,"tools":[{"type":"function"}]}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"tools":[{"type":"function"}],"tool_choice":"auto"}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"response_format":{"type":"json_object"}}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"structured_outputs":{"regex":"a"}}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"n":2}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"n":"1"}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"logprobs":true}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"continue_final_message":true}`, Field},
		{kvtransfer.Chat, chat + `,"temperature":0,"add_generation_prompt":false}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"echo":true}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"logprobs":0}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"stop":"\n"}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"presence_penalty":0.1}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"repetition_penalty":1.1}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"unknown":false}`, Field},
		{kvtransfer.Completions, text + `,"temperature":0,"temperature":1}`, Field},
		{kvtransfer.Completions, `{"prompt":["x"],"stream":true,"temperature":0}`, Field},
		{kvtransfer.Completions, `{"prompt":[[1,2]],"stream":true,"temperature":0}`, Field},
	} {
		s, ok := New(c.format, parse(t, c.body))
		if !ok || s.Reason() != c.want {
			t.Errorf("New(%s) = %v, reason %q, want %q", c.body, ok, s.Reason(), c.want)
		}
	}
	many := text + `,"temperature":0`
	for i := range maxFields {
		many += fmt.Sprintf(`,"unknown%d":null`, i)
	}
	if s, _ := New(kvtransfer.Completions, parse(t, many+"}")); s.Reason() != Field {
		t.Errorf("New() of a request with many fields: reason %q, want %q", s.Reason(), Field)
	}
	if _, ok := New(kvtransfer.Chat, parse(t, `{"messages":[],"temperature":0}`)); ok {
		t.Error("New() accepted a request without stream")
	}
}

func event(data string) []byte { return []byte("data: " + data + "\n\n") }

// text is a chunk of completions in vLLM's form.
func text(id string, prompt, tokens, text, finish string) []byte {
	return event(fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","created":1%s,"model":"m","choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null,"token_ids":%s,"prompt_token_ids":%s}]}`,
		id, id, text, finish, tokens, prompt))
}

// delta is a chunk of a chat in vLLM's form.
func delta(id string, prompt, tokens, delta, finish string) []byte {
	if prompt != "null" {
		tokens = "null"
	}
	return event(fmt.Sprintf(`{"id":"chatcmpl-%s","object":"chat.completion.chunk","created":1%s,"model":"m","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s,"token_ids":%s}],"prompt_token_ids":%s}`,
		id, id, delta, finish, tokens, prompt))
}

func usage(id string, prompt, completion int) []byte {
	return event(fmt.Sprintf(`{"id":"cmpl-%s","created":1%s,"model":"m","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":2}}}`,
		id, id, prompt, completion, prompt+completion))
}

var done = event("[DONE]")

// case of a stream that breaks off and its continuation.
type exchange struct {
	format        *kvtransfer.Format
	body          string
	first, second [][]byte
	request       string // of the continuation
	reason        Reason // of the continuation, or of an event of it
	want          []string
}

func (c *exchange) run(t *testing.T) (out []string, request string, reason Reason) {
	t.Helper()
	s, ok := New(c.format, parse(t, c.body))
	if !ok {
		t.Fatal("not streamed")
	}
	for _, e := range c.first {
		if e = s.Observe(e); len(e) > 0 {
			out = append(out, string(e))
		}
	}
	rest, body, reason := s.Resume()
	if reason != "" {
		return out, "", reason
	}
	request = string(body.Join())
	for _, e := range c.second {
		e, reason := rest.Event(e)
		if reason != "" {
			return out, request, reason
		}
		if len(e) > 0 {
			out = append(out, string(e))
		}
	}
	if !rest.Finished() {
		t.Error("the second answer has no finish reason")
	}
	return out, request, ""
}

const null = "null"

// hidden returns the event for a client that did not ask for token ids.
func hidden(e []byte) string {
	out := string(e)
	for _, key := range []string{`"token_ids":`, `"prompt_token_ids":`} {
		if at := strings.Index(out, key+"["); at >= 0 {
			at += len(key)
			out = out[:at] + null + out[at+strings.IndexByte(out[at:], ']')+1:]
		}
	}
	return out
}

func marked(e string, after int) string {
	return strings.Replace(e, "}\n\n", fmt.Sprintf(`,"grapevine_continued":{"after_tokens":%d}}`, after)+"\n\n", 1)
}

func TestContinue(t *testing.T) {
	const completions = `{"model":"m","prompt":"a","stream":true,"temperature":0,"max_tokens":9,"min_tokens":3,"stream_options":{"include_usage":true}`
	const chat = `{"model":"m","messages":[{"role":"user","content":"x"} ],"stream":true,"temperature":0`
	role := `{"role":"assistant","content":""}`
	for name, c := range map[string]exchange{
		"by ids": {
			format: kvtransfer.Completions, body: completions + `,"request_id":"r"}`,
			first:   [][]byte{text("1", "[5, 6]", "[7]", "b", null), text("1", null, "[8]", " c", null)},
			second:  [][]byte{text("2", "[5,6,7,8]", "[9]", "d", null), text("2", null, "[10]", "e", `"stop"`), usage("2", 4, 2), done},
			request: `{"model":"m","prompt":[5, 6,7,8],"stream":true,"temperature":0,"max_tokens":7,"min_tokens":1,"stream_options":{"include_usage":true},"return_token_ids":true}`,
			want: []string{
				hidden(text("1", "[5, 6]", "[7]", "b", null)), hidden(text("1", null, "[8]", " c", null)), hidden(text("1", "[5]", "[9]", "d", null)),
				marked(hidden(text("1", null, "[10]", "e", `"stop"`)), 2),
				strings.Replace(string(usage("1", 2, 4)), `,"prompt_tokens_details":{"cached_tokens":2}`, "", 1), string(done),
			},
		},
		"by text, several tokens in a chunk": {
			format: kvtransfer.Completions, body: completions + `}`,
			first:   [][]byte{text("1", "[5]", "[7,8]", `b \"c`, null)},
			second:  [][]byte{text("2", "[5,7,8]", "[9]", "d", `"length"`), done},
			request: `{"model":"m","prompt":"ab \"c","stream":true,"temperature":0,"max_tokens":7,"min_tokens":1,"stream_options":{"include_usage":true},"return_token_ids":true}`,
			want:    []string{hidden(text("1", "[5]", "[7,8]", `b \"c`, null)), marked(hidden(text("1", "[5]", "[9]", "d", `"length"`)), 2), string(done)},
		},
		"default length": {
			format: kvtransfer.Completions, body: `{"prompt":"a","stream":true,"temperature":0}`,
			first:   [][]byte{text("1", "[5]", "[7]", `b`, null)},
			second:  [][]byte{text("2", "[5,7]", "[9]", "d", `"length"`)},
			request: `{"prompt":[5,7],"stream":true,"temperature":0,"return_token_ids":true,"max_tokens":15}`,
			want:    []string{hidden(text("1", "[5]", "[7]", `b`, null)), marked(hidden(text("1", "[5]", "[9]", "d", `"length"`)), 1)},
		},
		"chat": {
			format: kvtransfer.Chat, body: chat + `,"max_completion_tokens":4}`,
			first:   [][]byte{delta("1", "[5,6]", "", role, null), delta("1", null, "[7,8]", `{"content":"b\n"}`, null), delta("1", null, "[]", `{}`, null)},
			second:  [][]byte{delta("2", "[5,6,7,8]", "", role, null), delta("2", null, "[9]", `{"content":"c"}`, null), delta("2", null, "[1]", `{"content":""}`, `"stop"`), done},
			request: `{"model":"m","messages":[{"role":"user","content":"x"} ,{"role":"assistant","content":"b\n"}],"stream":true,"temperature":0,"max_completion_tokens":2,"return_token_ids":true,"add_generation_prompt":false,"continue_final_message":true}`,
			want: []string{
				hidden(delta("1", "[5,6]", "", role, null)), hidden(delta("1", null, "[7,8]", `{"content":"b\n"}`, null)), hidden(delta("1", null, "[9]", `{"content":"c"}`, null)),
				marked(hidden(delta("1", null, "[1]", `{"content":""}`, `"stop"`)), 2), string(done),
			},
		},
		"token ids for the client": {
			format: kvtransfer.Chat, body: chat + `,"return_token_ids":true}`,
			first:   [][]byte{delta("1", "[5,6]", "", role, null), delta("1", null, "[7]", `{"content":"b"}`, null)},
			second:  [][]byte{delta("2", "[5,6,7]", "", role, null), delta("2", null, "[9]", `{"content":"c"}`, `"stop"`), done},
			request: `{"model":"m","messages":[{"role":"user","content":"x"} ,{"role":"assistant","content":"b"}],"stream":true,"temperature":0,"return_token_ids":true,"add_generation_prompt":false,"continue_final_message":true}`,
			want: []string{
				string(delta("1", "[5,6]", "", role, null)), string(delta("1", null, "[7]", `{"content":"b"}`, null)),
				marked(string(delta("1", null, "[9]", `{"content":"c"}`, `"stop"`)), 1), string(done),
			},
		},
		"sampled": {
			format: kvtransfer.Completions, body: `{"prompt":"a","stream":true,"temperature":1,"seed":40,"max_tokens":5}`,
			first:   [][]byte{text("1", "[5]", "[7]", `b`, null)},
			second:  [][]byte{text("2", "[5,7]", "[9]", "d", `"length"`)},
			request: `{"prompt":[5,7],"stream":true,"temperature":1,"seed":41,"max_tokens":4,"return_token_ids":true}`,
			want:    []string{hidden(text("1", "[5]", "[7]", `b`, null)), marked(hidden(text("1", "[5]", "[9]", "d", `"length"`)), 1)},
		},
		"usage in every chunk": {
			format: kvtransfer.Completions, body: completions + `}`,
			first:   [][]byte{text("1", "[5]", "[7]", `b`, null)},
			second:  [][]byte{[]byte(strings.Replace(string(text("2", "[5,7]", "[9]", "d", `"length"`)), "}\n", `,"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`+"\n", 1))},
			request: `{"model":"m","prompt":[5,7],"stream":true,"temperature":0,"max_tokens":8,"min_tokens":2,"stream_options":{"include_usage":true},"return_token_ids":true}`,
			want: []string{
				hidden(text("1", "[5]", "[7]", `b`, null)),
				marked(strings.Replace(hidden(text("1", "[5]", "[9]", "d", `"length"`)), "}\n", `,"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`+"\n", 1), 1),
			},
		},

		"no token ids":        {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", null, null, "b", null)}, reason: Tokens},
		"only the prompt":     {format: kvtransfer.Chat, body: chat + `}`, first: [][]byte{delta("1", "[5,6]", "", role, null)}, reason: Tokens},
		"tool calls":          {format: kvtransfer.Chat, body: chat + `}`, first: [][]byte{delta("1", "[5,6]", "", role, null), delta("1", null, "[7]", `{"tool_calls":[{"index":0}]}`, null)}, reason: Content},
		"reasoning":           {format: kvtransfer.Chat, body: chat + `}`, first: [][]byte{delta("1", "[5,6]", "", role, null), delta("1", null, "[7]", `{"reasoning":"b"}`, null)}, reason: Content},
		"finished":            {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7]", "b", `"stop"`)}, reason: Finished},
		"no token left":       {format: kvtransfer.Completions, body: `{"prompt":"a","stream":true,"temperature":0,"max_tokens":1}`, first: [][]byte{text("1", "[5]", "[7]", "b", null)}, reason: Finished},
		"too large":           {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7]", strings.Repeat("b", maxKept), null)}, reason: Large},
		"other tokens":        {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7,8]", "b", null)}, second: [][]byte{text("2", "[5,7,9]", "[9]", "d", null)}, reason: Differs},
		"fewer tokens":        {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7,8]", "b", null)}, second: [][]byte{text("2", "[5,7]", "[9]", "d", null)}, reason: Differs},
		"another model":       {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7]", "b", null)}, second: [][]byte{[]byte(strings.Replace(string(text("2", "[5,7]", "[9]", "d", null)), `"m"`, `"n"`, 1))}, reason: Differs},
		"second without ids":  {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7]", "b", null)}, second: [][]byte{text("2", null, null, "d", null)}, reason: Tokens},
		"second with tools":   {format: kvtransfer.Chat, body: chat + `}`, first: [][]byte{delta("1", "[5]", "", role, null), delta("1", null, "[7]", `{"content":"b"}`, null)}, second: [][]byte{delta("2", "[5,7]", "", role, null), delta("2", null, "[9]", `{"tool_calls":[{"index":0}]}`, null)}, reason: Content},
		"second fails":        {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7]", "b", null)}, second: [][]byte{event(`{"error":{"code":500}}`)}, reason: Broken},
		"second ends at once": {format: kvtransfer.Completions, body: completions + `}`, first: [][]byte{text("1", "[5]", "[7]", "b", null)}, second: [][]byte{done}, reason: Broken},
	} {
		t.Run(name, func(t *testing.T) {
			out, request, reason := c.run(t)
			if reason != c.reason {
				t.Fatalf("reason %q, want %q", reason, c.reason)
			}
			if reason != "" {
				return
			}
			if request != c.request {
				t.Errorf("continuation\n%s, want\n%s", request, c.request)
			}
			if d := cmp.Diff(c.want, out); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestPartialCharacter checks that token ids are not used as a prompt while the text of the last token
// is incomplete: the second engine would lose its bytes.
func TestPartialCharacter(t *testing.T) {
	for _, last := range [][]byte{text("1", null, "[8]", "", null), text("1", null, "[8]", "\ufffd", null), text("1", null, "[8]", `\ufffd`, null)} {
		c := exchange{format: kvtransfer.Completions, body: `{"prompt":"a","stream":true,"temperature":0}`, first: [][]byte{text("1", "[5]", "[7]", "b", null), last}, second: [][]byte{text("2", "[5,7]", "[9]", "d", null)}}
		_, request, reason := c.run(t)
		if !strings.HasPrefix(request, `{"prompt":"ab`) || reason != Differs {
			t.Errorf("continuation %s, reason %q", request, reason)
		}
	}
}

func TestAskTokens(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1,"return_token_ids":true}`, "{\"a\":{}} \n": `{"a":{},"return_token_ids":true}`, `[1]`: `[1]`, ``: ``,
	} {
		if got := string(AskTokens(kvtransfer.Pieces{[]byte(in)}).Join()); got != want {
			t.Errorf("AskTokens(%q) = %q, want %q", in, got, want)
		}
	}
	if got := string(AskTokens(kvtransfer.Pieces{[]byte(`{"a":`), []byte(`1`), []byte(`}`), []byte("\n")}).Join()); got != `{"a":1,"return_token_ids":true}` {
		t.Errorf("AskTokens() of pieces = %q", got)
	}
}

// FuzzStream reads arbitrary requests and answers. What the client gets is complete events, a
// continuation is a JSON object, and no event is passed before the prompt was verified.
func FuzzStream(f *testing.F) {
	for _, c := range []struct {
		chat                bool
		body, first, second string
	}{
		{false, `{"prompt":"a","stream":true,"temperature":0}`, string(text("1", "[5]", "[7]", "b", null)), string(text("2", "[5,7]", "[9]", "d", `"stop"`))},
		{false, `{"prompt":[5],"stream":true,"temperature":0}`, string(text("1", "[5]", "[7,8]", "b", null)), string(text("2", "[5,7,8]", "[9]", "d", null)) + string(usage("2", 3, 1))},
		{true, `{"messages":[{}],"stream":true,"temperature":0}`, string(delta("1", "[5]", "", `{"role":"assistant"}`, null)) + string(delta("1", null, "[7]", `{"content":"b"}`, null)), string(delta("2", "[5,7]", "", `{"role":"assistant"}`, null))},
	} {
		f.Add(c.chat, []byte(c.body), []byte(c.first), []byte(c.second))
	}
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, chat bool, body, first, second []byte) {
		o, err := kvtransfer.Parse(body)
		if err != nil {
			return
		}
		format := kvtransfer.Completions
		if chat {
			format = kvtransfer.Chat
		}
		s, ok := New(format, o)
		if !ok || s.Reason() != "" {
			return
		}
		for _, e := range strings.SplitAfter(string(first), "\n\n") {
			if out := s.Observe([]byte(e)); strings.HasSuffix(e, "\n\n") && len(out) > 0 && !strings.HasSuffix(string(out), "\n\n") {
				t.Fatalf("%q became %q", e, out)
			}
		}
		rest, again, reason := s.Resume()
		if reason != "" {
			return
		}
		if _, err := kvtransfer.Parse(again.Join()); err != nil {
			t.Fatalf("continuation of %q is %q: %v", body, again.Join(), err)
		}
		for _, e := range strings.SplitAfter(string(second), "\n\n") {
			out, reason := rest.Event([]byte(e))
			if reason != "" {
				return
			}
			if len(out) > 0 && !rest.verified {
				t.Fatalf("%q was passed before the prompt was verified", out)
			}
		}
	})
}
