package request

import "testing"

// The last of several members counts, as engines take it.
func TestUrgency(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		r := &Request{Path: "/v1/completions", Body: []byte(body)}
		if err := Parse(r); err != nil {
			t.Fatal(err)
		}
		if got := string(r.Urgency.Of(r.Body)); got != want {
			t.Errorf("%s: %q", body, got)
		}
	}
	f(`{"model":"m","prompt":"x"}`, "")
	f(`{"model":"m","prompt":"x","metadata":{"priority":3}}`, "")
	f(`{"model":"m","priority":3,"prompt":"x","priorit\u0079": -4 }`, "-4")
}

// Engines do not read the prefix cache for these requests, and do for similar-looking ones.
func TestSkipsCache(t *testing.T) {
	f := func(path, body string, want bool) {
		t.Helper()
		r := &Request{Path: path, Body: []byte(body)}
		if err := Parse(r); err != nil {
			t.Fatal(err)
		}
		if got := r.SkipsCache(); got != want {
			t.Errorf("%s %s: %v", path, body, got)
		}
	}
	const chat, completions, generate = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
	f(completions, `{"model":"m","prompt":"x","prompt_logprobs":0}`, true)
	f(completions, `{"model":"m","prompt":"x","prompt_logprobs":null}`, false)
	f(completions, `{"model":"m","prompt":"x","echo":true}`, false)
	f(completions, `{"model":"m","prompt":"x","echo":true,"logprobs":0}`, true)
	f(completions, `{"model":"m","prompt":"x","logprobs":5}`, false)
	f(chat, `{"model":"m","messages":[],"echo":true}`, true)
	f(chat, `{"model":"m","messages":[],"logprobs":true}`, false)
	f(chat, `{"model":"m","messages":[],"prompt_logprobs":2}`, true)
	f(generate, `{"token_ids":[1],"sampling_params":{"prompt_logprobs":1}}`, true)
	f(generate, `{"token_ids":[1],"sampling_params":{"skip_reading_prefix_cache":true}}`, true)
	f(generate, `{"token_ids":[1],"sampling_params":{"prompt_logprobs":1,"skip_reading_prefix_cache":false}}`, false)
}
