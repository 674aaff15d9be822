package kvtransfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApply(t *testing.T) {
	strip, refuse := Policy{Action: Strip}, Policy{}
	for _, c := range []struct {
		name, body string
		policy     Policy
		want       string // "" = refused
	}{
		{"nothing", `{"model":"m","seed":9007199254740993}`, refuse, `{"model":"m","seed":9007199254740993}`},
		{"refused", `{"kv_transfer_params":{"do_remote_prefill":true}}`, refuse, ""},
		{"even null", `{"kv_transfer_params":null}`, refuse, ""},
		{"stripped", `{"a": 1, "kv_transfer_params":{"x":[1]}, "bootstrap_room":3,"b":2}`, strip, `{"a": 1,"b":2}`},
		{"escaped name", `{"kv_tr\u0061nsfer_params":{}}`, strip, `{}`},
		{"nested", `{"vllm_xargs":{"keep":1,"kv_transfer_params":"x"},"sampling_params":{"n":1,"extra_args":{"ec_transfer_params":{}}}}`, strip,
			`{"vllm_xargs":{"keep":1},"sampling_params":{"n":1,"extra_args":{}}}`},
		{"nested refused", `{"sampling_params":{"extra_args":{"kv_transfer_params":1}}}`, refuse, ""},
		{"allowed", `{"cache_hit_threshold":0.5}`, Policy{Allow: []string{"cache_hit_threshold"}}, `{"cache_hit_threshold":0.5}`},
		{"twice", `{"kv_transfer_params":1,"kv_transfer_params":2}`, strip, ""},
		{"allowed twice", `{"cache_hit_threshold":0,"cache_hit_threshold":1}`, Policy{Allow: []string{"cache_hit_threshold"}}, ""},
	} {
		o, err := Parse([]byte(c.body))
		if err != nil {
			t.Fatal(c.name, err)
		}
		got, removed, err := c.policy.Apply(&o)
		if string(got) != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrField) {
			t.Errorf("%s: %s, removed %v, %v", c.name, got, removed, err)
		}
	}
}

// TestFormats: the prefill request of each API asks for one token, and its response's usage is found.
func TestFormats(t *testing.T) {
	const chat = `{"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":40}}}`
	for path, c := range map[string]struct {
		request, prefill, answer string
		prompt, cached           int
	}{
		"/v1/chat/completions": {`{"max_tokens":9}`, `{"max_tokens":1,"stream":false,"max_completion_tokens":1,"min_tokens":1}`, chat, 50, 40},
		"/v1/completions":      {`{"max_tokens":9}`, `{"max_tokens":1,"stream":false,"max_completion_tokens":1,"min_tokens":1}`, chat, 50, 40},
		"/v1/messages":         {`{"max_tokens":9}`, `{"max_tokens":1,"stream":false}`, `{"usage":{"input_tokens":10,"cache_read_input_tokens":40}}`, 10, 40},
		"/v1/responses": {
			`{"max_output_tokens":9,"store":true}`, `{"max_output_tokens":1,"store":false,"stream":false}`,
			`{"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":40}}}`, 50, 40,
		},
		"/inference/v1/generate": {`{"sampling_params":{"max_tokens":9}}`, `{"sampling_params":{"max_tokens":1,"min_tokens":1},"stream":false}`, chat, 50, 40},
		"/generate":              {`{"text":"x"}`, `{"text":"x","stream":false}`, chat, 0, -1},
	} {
		f := FormatOf(path)
		o, err := Parse([]byte(c.request))
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.Join(f.PrefillBody(&o), nil)
		var got, want any
		if err := errors.Join(json.Unmarshal(body, &got), json.Unmarshal([]byte(c.prefill), &want)); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, body)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: PrefillBody() (-want +got):\n%s", path, diff)
		}
		if prompt, cached := f.PromptTokens([]byte(c.answer)), f.Cached([]byte(c.answer)); prompt != c.prompt || cached != c.cached {
			t.Errorf("%s: %d prompt tokens, %d cached, want %d and %d", path, prompt, cached, c.prompt, c.cached)
		}
	}
}
