package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// body is an answer or a chunk, as a client sees it.
type body struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index        int
		Text         string
		Message      struct{ Role, Content string }
		Delta        struct{ Role, Content string }
		FinishReason *string  `json:"finish_reason"`
		TokenIDs     []uint32 `json:"token_ids"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
		Details          struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
}

func chatBody(text string, more string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, vocab.Name, text, more)
}

func TestChat(t *testing.T) {
	e := open(t, fast(Options{}))
	want := do(t, e, "POST", "/v1/chat/completions", chatBody("hello the engine", `,"max_tokens":20,"ignore_eos":true`), "X-Request-Id", "r1")
	var b body
	want.decoded(t, 200, &b)
	if b.ID != "chatcmpl-r1" || b.Object != "chat.completion" || b.Model != vocab.Name || b.Created == 0 {
		t.Errorf("head %+v", b)
	}
	c := b.Choices[0]
	if c.Message.Role != "assistant" || *c.FinishReason != "length" {
		t.Errorf("choice %+v", c)
	}
	seed := answer.OfChat([]vocab.Message{{Role: "user", Content: "hello the engine"}})
	if err := answer.Check(e.words, seed, c.Message.Content); err != nil || len(c.Message.Content) < 60 {
		t.Errorf("%v in %q", err, c.Message.Content)
	}
	// <|im_start|> u s e r \n h e l l o _the _engine <|im_end|> \n <|im_start|> a s s i s t a n t \n
	if u := b.Usage; u.PromptTokens != 26 || u.CompletionTokens != 20 || u.TotalTokens != 46 || u.Details.CachedTokens != 0 {
		t.Errorf("usage %+v", u)
	}
	if got := want.header.Get("X-Request-Id"); got != "r1" {
		t.Errorf("request id %q", got)
	}
}

// chunks parses a stream, and checks its end.
func chunks(t *testing.T, r response) (list []body) {
	t.Helper()
	if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("status %d, %v: %s", r.status, r.header, r.body)
	}
	events := strings.Split(strings.TrimSuffix(string(r.body), "\n\n"), "\n\n")
	if events[len(events)-1] != "data: [DONE]" {
		t.Fatalf("the stream ends with %q", events[len(events)-1])
	}
	for _, ev := range events[:len(events)-1] {
		if strings.HasPrefix(ev, StreamSumPrefix) {
			continue
		}
		var b body
		if err := json.Unmarshal([]byte(strings.TrimPrefix(ev, "data: ")), &b); err != nil {
			t.Fatalf("%v in %q", err, ev)
		}
		list = append(list, b)
	}
	return list
}

// TestStreamsEqualAnswers: the pieces of a stream add up to the answer, for every
// kind of request.
func TestStreamsEqualAnswers(t *testing.T) {
	e := open(t, fast(Options{Created: 7}))
	for name, c := range map[string]struct{ path, params string }{
		"chat":        {"/v1/chat/completions", `"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]`},
		"completion":  {"/v1/completions", `"prompt":"once upon a time","max_tokens":40`},
		"ids":         {"/v1/completions", `"prompt":[1,2,3,4,5,6],"max_tokens":3`},
		"several":     {"/v1/completions", `"prompt":["a","b"],"max_tokens":30,"n":2,"seed":5`},
		"id lists":    {"/v1/completions", `"prompt":[[1,2],[3]],"max_tokens":3`},
		"echo":        {"/v1/completions", `"prompt":"echo this","max_tokens":3,"echo":true`},
		"stop string": {"/v1/chat/completions", `"messages":[{"role":"user","content":"stop"}],"stop":["e"]`},
	} {
		t.Run(name, func(t *testing.T) {
			params := `{"model":"` + vocab.Name + `",` + c.params
			var whole body
			do(t, e, "POST", c.path, params+"}").decoded(t, 200, &whole)
			stream := chunks(t, do(t, e, "POST", c.path, params+`,"stream":true,"stream_options":{"include_usage":true}}`))
			texts := make([]string, len(whole.Choices))
			reasons := make([]string, len(whole.Choices))
			for _, chunk := range stream[:len(stream)-1] {
				ch := chunk.Choices[0]
				texts[ch.Index] += ch.Text + ch.Delta.Content
				if ch.FinishReason != nil {
					reasons[ch.Index] += *ch.FinishReason
				}
			}
			for i, ch := range whole.Choices {
				if texts[i] != ch.Text+ch.Message.Content || reasons[i] != *ch.FinishReason {
					t.Errorf("choice %d: streamed %q (%s), whole %q (%s)", i, texts[i], reasons[i], ch.Text+ch.Message.Content, *ch.FinishReason)
				}
			}
			last := stream[len(stream)-1]
			if len(last.Choices) != 0 || last.Usage == nil || last.Usage.CompletionTokens != whole.Usage.CompletionTokens {
				t.Errorf("last chunk %+v, whole usage %+v", last, whole.Usage)
			}
		})
	}
}

func TestAnswersEndByThemselves(t *testing.T) {
	e := open(t, fast(Options{}))
	var b body
	do(t, e, "POST", "/v1/chat/completions", chatBody("tell me", `,"return_token_ids":true`)).decoded(t, 200, &b)
	c := b.Choices[0]
	want := answer.OfChat([]vocab.Message{{Role: "user", Content: "tell me"}}).Length() + 1
	if *c.FinishReason != "stop" || b.Usage.CompletionTokens != want || len(c.TokenIDs) != want || c.TokenIDs[want-1] != e.words.End() {
		t.Errorf("%d tokens, %s, ids %v, want %d ending with %d", b.Usage.CompletionTokens, *c.FinishReason, c.TokenIDs, want, e.words.End())
	}
	if got := string(e.words.AppendText(nil, c.TokenIDs[:want-1])); got != c.Message.Content {
		t.Errorf("ids say %q, text %q", got, c.Message.Content)
	}
	if len(b.PromptTokenIDs) != b.Usage.PromptTokens {
		t.Errorf("%d prompt ids", len(b.PromptTokenIDs))
	}
}

// TestNextTurnHits: the next turn of a chat finds prompt and answer cached.
func TestNextTurnHits(t *testing.T) {
	e := open(t, fast(Options{}))
	system := strings.Repeat(" the engine keeps every block of the prompt.", 20)
	messages := []vocab.Message{{Role: "system", Content: vocab.Content(system)}, {Role: "user", Content: "first"}}
	ask := func() (b body) {
		raw, err := json.Marshal(map[string]any{"messages": messages})
		if err != nil {
			t.Fatal(err)
		}
		do(t, e, "POST", "/v1/chat/completions", string(raw)).decoded(t, 200, &b)
		return b
	}
	one := ask()
	messages = append(messages, vocab.Message{Role: "assistant", Content: vocab.Content(one.Choices[0].Message.Content)}, vocab.Message{Role: "user", Content: "second"})
	two := ask()
	total := one.Usage.TotalTokens - 1
	if want := total / 16 * 16; two.Usage.Details.CachedTokens != want {
		t.Errorf("%d tokens cached of %d computed, want %d", two.Usage.Details.CachedTokens, total, want)
	}
	if s := e.Stats()[0].Engine; int(s.HitTokens) != two.Usage.Details.CachedTokens {
		t.Errorf("hit counter %d", s.HitTokens)
	}
	do(t, e, "POST", "/reset_prefix_cache", "")
	if three := ask(); three.Usage.Details.CachedTokens != 0 {
		t.Errorf("%d tokens cached after a reset", three.Usage.Details.CachedTokens)
	}
}

func TestSeparation(t *testing.T) {
	e := open(t, fast(Options{Adapters: []string{"ad"}}))
	long := strings.Repeat(" prompt", 100)
	cached := func(more string) int {
		var b body
		do(t, e, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1%s}`, long, more)).decoded(t, 200, &b)
		return b.Usage.Details.CachedTokens
	}
	for _, more := range []string{"", `,"model":"ad"`, `,"cache_salt":"s"`, `,"cache_salt":"s","model":"ad"`} {
		if n := cached(more); n != 0 {
			t.Errorf("%q finds %d tokens of others", more, n)
		}
		if n := cached(more); n != 96 {
			t.Errorf("%q finds %d of its own tokens, want 96", more, n)
		}
	}
}

func TestErrors(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore(), Ranks: 2}))
	long := strings.Repeat(" prompt", 1600)
	for name, c := range map[string]struct {
		path, body, rank string
		status           int
		message          string
	}{
		"not json":     {"/v1/completions", `{`, "", 400, "not valid JSON"},
		"no model":     {"/v1/completions", `{"model":"other","prompt":"x"}`, "", 404, "The model `other` does not exist."},
		"no prompt":    {"/v1/completions", `{}`, "", 400, "prompt"},
		"empty prompt": {"/v1/completions", `{"prompt":""}`, "", 400, "cannot be empty"},
		"bad prompt":   {"/v1/completions", `{"prompt":{"a":1}}`, "", 400, "prompt"},
		"no messages":  {"/v1/chat/completions", `{}`, "", 400, "no messages"},
		"image":        {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "", 400, "image_url"},
		"wrong type":   {"/v1/completions", `{"prompt":"x","max_tokens":"a"}`, "", 400, "max_tokens"},
		"max_tokens 0": {"/v1/completions", `{"prompt":"x","max_tokens":0}`, "", 400, "at least 1"},
		"n 0":          {"/v1/completions", `{"prompt":"x","n":0}`, "", 400, "at least 1"},
		"too long":     {"/v1/completions", fmt.Sprintf(`{"prompt":%q}`, long), "", 400, "maximum context length is 1600 tokens. However, your request has 1600 input tokens"},
		"too much":     {"/v1/completions", `{"prompt":"x","max_tokens":1600}`, "", 400, "too large: 1600"},
		"rank":         {"/v1/completions", `{"prompt":"x"}`, "2", 400, "out of range"},
		"rank unread":  {"/v1/completions", `{"prompt":"x"}`, "x", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b struct {
				Error struct {
					Message, Type string
					Code          int
				}
			}
			r := do(t, e, "POST", c.path, c.body, "X-Data-Parallel-Rank", c.rank)
			r.decoded(t, c.status, &b)
			if !strings.Contains(b.Error.Message, c.message) || c.status != 200 && b.Error.Code != c.status {
				t.Errorf("%s", r.body)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	e := open(t, fast(Options{}))
	chat := `"messages":[{"role":"user","content":"hi the prompt"}]`
	text := "<|im_start|>user\nhi the prompt<|im_end|>\n<|im_start|>assistant\n"
	want := e.words.AppendTokens(nil, []byte(text), false)
	type tokens struct {
		Count    int
		Tokens   []uint32
		TokenIDs []uint32 `json:"token_ids"`
		Strings  []string `json:"token_strs"`
	}
	var tok, ren tokens
	do(t, e, "POST", "/tokenize", `{`+chat+`,"return_token_strs":true}`).decoded(t, 200, &tok)
	do(t, e, "POST", "/v1/chat/completions/render", `{`+chat+`,"stream":true}`).decoded(t, 200, &ren)
	if !slices.Equal(tok.Tokens, want) || tok.Count != len(want) || !slices.Equal(ren.TokenIDs, want) || strings.Join(tok.Strings, "") != text {
		t.Errorf("tokenize %+v, render %+v, want %v", tok, ren, want)
	}
	var list []tokens
	do(t, e, "POST", "/v1/completions/render", `{"prompt":["the prompt"," x"]}`).decoded(t, 200, &list)
	if len(list) != 2 || !slices.Equal(list[0].TokenIDs, e.words.AppendTokens(nil, []byte("the prompt"), true)) {
		t.Errorf("render %+v", list)
	}
	do(t, e, "POST", "/tokenize", `{"prompt":"the prompt"}`).decoded(t, 200, &tok)
	if !slices.Equal(tok.Tokens, list[0].TokenIDs) {
		t.Errorf("tokenize %v", tok.Tokens)
	}
	raw, err := json.Marshal(map[string]any{"tokens": want})
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Prompt string }
	do(t, e, "POST", "/detokenize", string(raw)).decoded(t, 200, &back)
	if back.Prompt != text {
		t.Errorf("detokenize %q", back.Prompt)
	}
}

// TestSums: checksums cover the bytes that passed.
func TestSums(t *testing.T) {
	e := open(t, fast(Options{}))
	req := chatBody("sum", `,"max_tokens":5`)
	r := do(t, e, "POST", "/v1/chat/completions", req, HeaderVerify, "1")
	if r.header.Get(HeaderRequestSum) != sumText(checksum([]byte(req))) || r.header.Get(HeaderResponseSum) != sumText(checksum(r.body)) {
		t.Errorf("sums %v", r.header)
	}
	r = do(t, e, "POST", "/v1/chat/completions", strings.Replace(req, "{", `{"stream":true,`, 1), HeaderVerify, "1")
	chunks(t, r)
	at := bytes.Index(r.body, []byte(StreamSumPrefix))
	want := sumText(checksum(r.body[:at]))
	if got := string(r.body[at+len(StreamSumPrefix) : at+len(StreamSumPrefix)+16]); got != want {
		t.Errorf("stream sum %s, want %s", got, want)
	}
}

func TestManagement(t *testing.T) {
	e := open(t, fast(Options{Model: "base", Aliases: []string{"alias"}, Adapters: []string{"one"}}))
	ids := func() (ids []string) {
		var b struct{ Data []struct{ ID, Parent string } }
		do(t, e, "GET", "/v1/models", "").decoded(t, 200, &b)
		for _, d := range b.Data {
			ids = append(ids, d.ID+"<"+d.Parent)
		}
		return ids
	}
	for _, step := range []struct {
		path, body string
		status     int
		want       []string
	}{
		{"/v1/load_lora_adapter", `{"lora_name":"two","lora_path":"/p"}`, 200, []string{"base<", "alias<", "one<base", "two<base"}},
		{"/v1/load_lora_adapter", `{"lora_name":"two","lora_path":"/p"}`, 400, []string{"base<", "alias<", "one<base", "two<base"}},
		{"/v1/load_lora_adapter", `{"lora_name":"x"}`, 400, []string{"base<", "alias<", "one<base", "two<base"}},
		{"/v1/unload_lora_adapter", `{"lora_name":"one"}`, 200, []string{"base<", "alias<", "two<base"}},
		{"/v1/unload_lora_adapter", `{"lora_name":"one"}`, 404, []string{"base<", "alias<", "two<base"}},
	} {
		if r := do(t, e, "POST", step.path, step.body); r.status != step.status {
			t.Errorf("%s %s: %d %s", step.path, step.body, r.status, r.body)
		}
		if diff := cmp.Diff(step.want, ids()); diff != "" {
			t.Error(diff)
		}
	}
	for path, status := range map[string]int{"/health": 200, "/ping": 200, "/version": 200, "/load": 200, "/is_sleeping": 200, "/kv_event_sources": 404, "/none": 404} {
		if r := do(t, e, "GET", path, ""); r.status != status {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}
