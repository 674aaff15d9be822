package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

type headerMap map[string]string

func (h headerMap) Get(name string) string { return h[name] }

func TestParse(t *testing.T) {
	f := func(path, body string, check func(*Request) any, want any) {
		t.Helper()
		r := &Request{Path: path, Body: []byte(body)}
		if err := Parse(r); err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		if diff := cmp.Diff(want, check(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	chat := "/v1/chat/completions"
	model := func(r *Request) any { return r.Model + "|" + string(r.Body[r.ModelSpan[0]:r.ModelSpan[1]]) }
	f(chat, `{"model":"a"}`, model, `a|"a"`)
	f(chat, ` { "model" : "a" , "model":"b"}  `, model, `b|"b"`)
	f(chat, `{"mod\u0065l":"a\/b"}`, model, `a/b|"a\/b"`)
	f(chat, "\t{\"x\":{\"model\":\"no\"},\"model\":\"a\\\\\"}", model, `a\|"a\\"`)
	f("/openai/v1/completions?x=1", `{"model":"m"}`, func(r *Request) any { return r.Kind }, KindCompletions)
	// Without the version, the body decides whether it is this kind or another call.
	kind := func(r *Request) any { return r.Kind }
	f("/openai/deployments/m/chat/completions?api-version=1", `{"model":"m","messages":[{}]}`, kind, KindChat)
	f("/llm/completions", `{"model":"m","prompt":"x"}`, kind, KindCompletions)
	f("/llm/responses", `{"model":"m","input":"x"}`, kind, KindResponses)
	f("/v1/threads/t/messages", `{"role":"user","content":"x"}`, kind, KindOther)
	f("/api/messages", `not JSON`, kind, KindOther)
	f("/api/embeddings", `{"input":"x"}`, kind, KindOther)
	f("/my-completions", `{"model":"m","prompt":"x"}`, kind, KindOther)
	f("/llm/responses/resp_1/cancel", ``, func(r *Request) any { return r.Previous }, "resp_1")

	stream := func(r *Request) any { return fmt.Sprint(r.Stream, r.IncludeUsage, r.MaxTokens) }
	f(chat, `{"model":"a","stream":true,"stream_options":{"include_usage":true},"max_tokens":7}`, stream, "true true 7")
	f(chat, `{"model":"a","stream_options":{"include_usage":true},"stream_options":{}}`, stream, "false false 0")
	f(chat, `{"model":"a","max_completion_tokens":12.0,"stream":null}`, stream, "false false 12")
	f("/v1/responses", `{"model":"a","max_output_tokens":9}`, stream, "false false 9")
	f("/generate", `{"text":"x","sampling_params":{"max_new_tokens":5}}`, stream, "false false 5")
	f(chat, `{"model":"a","max_tokens":-3,"temperature":NaN,"x":[-Infinity,1e5,-0.25E-3]}`, stream, "false false 0")

	who := func(r *Request) any { return r.User + "|" + r.Session + "|" + r.CacheSalt }
	f(chat, `{"model":"a","user":"u","session_id":"s","cache_salt":"c"}`, who, "u|s|c")
	f("/v1/messages", `{"model":"a","metadata":{"user_id":"u"},"prompt_cache_key":"k"}`, who, "u|k|")

	prompt := func(r *Request) any {
		p := r.Prompt
		return fmt.Sprintf("%d %s %s %d", p.Form, p.Main.Of(r.Body), r.Chunks.Bytes, r.InputTokens)
	}
	f(chat, `{"model":"a","messages":[{"role":"user"}],"prompt":"p"}`, prompt, `5 [{"role":"user"}] [{"role":"user"} 4`)
	f("/v1/completions", `{"prompt":"12345678","model":"a"}`, prompt, `1 "12345678" "12345678 2`)
	f("/v1/completions", `{"prompt":["a","b"],"model":"a"}`, prompt, `2 ["a","b"] ["a","b" 2`)
	f("/v1/completions", `{"prompt":[1,22, 333],"model":"a"}`, prompt, `3 [1,22, 333] [1,22, 333 3`)
	f("/v1/completions", `{"prompt":[[1],[2,3]],"model":"a"}`, prompt, `4 [[1],[2,3]] [[1],[2,3] 3`)
	f("/v1/messages", `{"model":"a","messages":[],"system":"sys"}`, prompt, `0   0`)
	f("/v1/messages", `{"model":"a","messages":[{}],"system":"sys"}`, prompt, `5 [{}] "sys"[{} 2`)
	f("/inference/v1/generate", `{"token_ids":[5,6]}`, prompt, `3 [5,6] [5,6 2`)
	f("/tokenize", `{"prompt":"x","model":"m"}`, model, `m|"m"`)
	f("/v1/models", `not json`, model, `|`)

	// Engines resolve percent signs in paths, and take words and quoted numbers.
	f("/v1/chat/completion%73", `{"model":"m","messages":[{}]}`, kind, KindChat)
	f("/v1%2Fchat/%63ompletions", `{"model":"m","messages":[{}]}`, kind, KindChat)
	f("/v1/chat/completion%7", `{"model":"m"}`, kind, KindOther)
	f(chat, `{"model":"a","stream":"True","stream_options":{"include_usage":1},"max_tokens":" 70 "}`, stream, "true true 70")
	f(chat, `{"model":"a","stream":"no","max_tokens":"x"}`, stream, "false false 0")
	f("/v1/completions", `{"model":"a","n":"2"}`, func(r *Request) any { return r.Whole }, true)

	// A body that an engine can read and the parser cannot would pass unchecked, so it is suspect.
	suspect := func(r *Request) any { return r.KVTransfer }
	for body, want := range map[string]bool{
		"": false, "--part\r\n\r\n\x00\x00": false, "{\"a\":1}\n{\"a\":2}": false, "\x00\x00\x00\x18ftypmp42": false, "not json": false,
		"{\x00\"\x00a\x00": true, "\x00{\x00\"": true, "\xff\xfe{\x00": true, "\xfe\xff\x00{": true, "\x00\x00\x00{": true, " \x00\n\x00{\x00": true,
		`{"x":` + strings.Repeat("[", maxDepth+1): true, `{"x":` + strings.Repeat("[", maxDepth-1): false,
	} {
		f("/invocations", body, suspect, want)
	}
}

func TestParseRefuses(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		err := Parse(&Request{Path: "/v1/chat/completions", Body: []byte(body)})
		var refused *Error
		if !errors.As(err, &refused) || refused.Reason != ReasonBadRequest || !strings.Contains(refused.Message, want) {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
	f("\x1f\x8b\x08\x00", "Content-Encoding")
	for _, body := range []string{
		``, `[]`, `"x"`, `{`, `{"model":"a"`, `{"model":"a"}}`, `{"model":"a",}`, `{"model" "a"}`, `{model:"a"}`,
		`{"model":"a","x":[1,]}`, `{"model":"a","x":[1 2]}`, `{"model":"a","x":{"y"}}`, `{"model":"a","x":tru}`,
		`{"model":"a","x":01}`, `{"model":"a","x":[01,2]}`, `{"model":"a","x":[1,,2]}`, `{"model":"a","x":[1, ]}`, `{"model":"a","x":[1,`, `{"model":"a","x":1.}`, `{"model":"a","x":1e}`, `{"model":"a","x":-}`, `{"model":"a","x":[}}`,
		`{"model":"a\"}`, `{"model":"a","x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
	} {
		f(body, "not valid JSON")
	}
}

func TestParseHeaders(t *testing.T) {
	r := &Request{Path: "/v1/completions", Body: []byte(`{"model":"m","session_id":"body"}`), Headers: headerMap{
		HeaderObjectiveAlt: "gold", HeaderFairness: "tenant", HeaderModelRewrite: "target",
		HeaderSLOTTFT: "250", HeaderSLOTPOTAlt: "12.5", HeaderSession: "s",
	}}
	if err := Parse(r); err != nil {
		t.Fatal(err)
	}
	got := []any{r.Objective, r.FairnessID, r.Target, r.SLOTTFT, r.SLOTPOT, r.Session}
	want := []any{"gold", "tenant", "target", 250 * time.Millisecond, 12500 * time.Microsecond, "s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r = &Request{Path: "/v1/completions", Body: []byte("\xef\xbb\xbf {\"model\":\"m\",\"prompt\":\"p\"}"), Headers: headerMap{
		HeaderObjectiveAlt: "old", HeaderObjective: "new", HeaderFairnessAlt: "old", HeaderFairness: "new", HeaderModelRewriteAlt: "old",
		HeaderModelRewrite: "new", HeaderSLOTTFTAlt: "1", HeaderSLOTTFT: "2", HeaderSLOTPOTAlt: "1", HeaderSLOTPOT: "2",
	}}
	if err := Parse(r); err != nil {
		t.Fatalf("byte order mark: %v", err)
	}
	got = []any{r.Model, string(r.Body[r.ModelSpan[0]:r.ModelSpan[1]]), r.Objective, r.FairnessID, r.Target, r.SLOTTFT, r.SLOTPOT}
	want = []any{"m", `"m"`, "new", "new", "new", 2 * time.Millisecond, 2 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("newer spellings: -want +got:\n%s", diff)
	}
	for _, bad := range []string{"-1", "x", "NaN", "0"} {
		if d := milliseconds(bad); d != 0 {
			t.Errorf("%s: %v", bad, d)
		}
	}
	for own, want := range map[string]time.Duration{"": 1500 * time.Millisecond, "200": 200 * time.Millisecond} {
		if d := queueTTL(headerMap{HeaderQueueTTL: own, HeaderQueueTTLAlt: "1500ms"}); d != want {
			t.Errorf("queue TTL %q and 1500ms: %v, want %v", own, d, want)
		}
	}
	for text, want := range map[string]time.Duration{"2s": 2 * time.Second, "-2s": 0, "2": 0, "90h": time.Hour, "": 0} {
		if d := queueTTL(headerMap{HeaderQueueTTLAlt: text}); d != want {
			t.Errorf("queue TTL %q: %v, want %v", text, d, want)
		}
	}
	if d := milliseconds("1e99"); d != time.Hour {
		t.Errorf("1e99: %v", d)
	}
}

// TestMedia checks that a picture does not count by its base64 length.
func TestMedia(t *testing.T) {
	picture := strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 4000)
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		picture + `"}},{"type":"text","text":"` + strings.Repeat("plain words ", 300) + `"}]}]}`
	r := &Request{Path: "/v1/chat/completions", Body: []byte(body)}
	if err := Parse(r); err != nil {
		t.Fatal(err)
	}
	if r.Prompt.Media != 1 || r.InputTokens < 1024+800 || r.InputTokens > 1024+1100 {
		t.Errorf("%d media, %d tokens", r.Prompt.Media, r.InputTokens)
	}
}

func TestParsePrefix(t *testing.T) {
	whole := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hello there"}],"user":"u"}`)
	full := &Request{Path: "/v1/chat/completions", Body: whole}
	ParsePrefix(full)
	for n := range whole {
		r := &Request{Path: "/v1/chat/completions", Body: whole[:n]}
		ParsePrefix(r)
		if !strings.HasPrefix(string(full.Chunks.Bytes)+"]", string(r.Chunks.Bytes)) {
			t.Fatalf("cut at %d: chunks %q", n, r.Chunks.Bytes)
		}
		if n > 60 && (r.Model != "m" || len(r.Chunks.Bytes) < 20) {
			t.Fatalf("cut at %d: model %q, chunks %q", n, r.Model, r.Chunks.Bytes)
		}
	}
}

func TestChunkRoot(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	root := func(body string) block.Key {
		r := &Request{Path: "/v1/chat/completions", Body: []byte(body)}
		if err := Parse(r); err != nil {
			t.Fatal(err)
		}
		return r.ChunkRoot(h, block.Scope{Model: r.Model})
	}
	plain := root(`{"model":"m","messages":[{}]}`)
	if empty := root(`{"model":"m","messages":[{}],"tools":[]}`); empty != plain {
		t.Error("empty tools change the root")
	}
	a, b := root(`{"tools":[{"a":1}],"model":"m","messages":[{}]}`), root(`{"model":"m","messages":[{}],"tools":[{"a":1}]}`)
	if a != b || a == plain {
		t.Errorf("roots %x %x %x", plain, a, b)
	}
}

// FuzzParse compares the scanner with encoding/json: the scanner accepts every body that
// encoding/json accepts, and reads the same values.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"model":"a","messages":[{"role":"user","content":"x\"y\\"}],"stream":true}`,
		`{"model":"a","mod\u0065l":"b","max_tokens":1e2,"x":{"y":[[],{},[1,-2.5e3]]}}`,
		`{"model":"a","stream_options":{"include_usage":true},"prompt":[1,2,3]}`, `{"a":tru`, `{"model":"a"} x`, `[`, `{"":"\\\\\""}`,
	} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, body []byte) {
		r := &Request{Path: "/v1/chat/completions", Body: body}
		err := Parse(r)
		ParsePrefix(&Request{Path: "/v1/messages", Body: body})
		var want map[string]json.RawMessage
		if json.Unmarshal(body, &want) != nil || want == nil {
			return
		}
		var model string
		_ = json.Unmarshal(want["model"], &model)
		if err != nil || r.Model != model {
			t.Fatalf("model %q (%v), want %q", r.Model, err, model)
		}
		if r.Stream != (string(want["stream"]) == "true") {
			t.Fatalf("stream %v, want %s", r.Stream, want["stream"])
		}
		var literal string
		if model == "" && r.ModelSpan != [2]int{} || model != "" && json.Unmarshal(r.Body[r.ModelSpan[0]:r.ModelSpan[1]], &literal) != nil || literal != model {
			t.Fatalf("span %v holds %q", r.ModelSpan, literal)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	words := strings.Repeat("The quick brown fox jumps over the lazy dog.\\n", 20)
	message := `{"role":"user","content":"` + words + `"},`
	f := func(name string, body []byte) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			r := new(Request)
			for b.Loop() {
				*r = Request{Path: "/v1/chat/completions", Body: body}
				if err := Parse(r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(body)), "ns/byte")
		})
	}
	f("chat1K", []byte(`{"model":"m","stream":true,"messages":[`+message+`{"role":"user","content":"x"}]}`))
	f("chat400K", []byte(`{"model":"m","messages":[`+strings.Repeat(message, 410)+`{"role":"user","content":"x"}]}`))
	f("quotes400K", []byte(`{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat(`say \"hello\" to `, 24000)+`"}]}`))
	f("tokens400K", []byte(`{"model":"m","messages":[`+strings.Repeat("12345,", 66000)+`1]}`))
}
