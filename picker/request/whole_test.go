package request

import "testing"

// TestWhole: which requests engines cannot serve in parts.
func TestWhole(t *testing.T) {
	f := func(path, members string, want bool) {
		t.Helper()
		r := &Request{Path: path, Body: []byte(`{"model":"m","prompt":"x"` + members + `}`)}
		if err := Parse(r); err != nil || r.Whole != want {
			t.Errorf("%s: whole %v, %v", members, r.Whole, err)
		}
	}
	const path = "/v1/completions"
	f(path, ``, false)
	f(path, `,"n":1,"best_of":1,"prompt_logprobs":null,"echo":false,"background":false,"previous_response_id":null,"max_tokens":2`, false)
	for _, members := range []string{`,"n":2`, `,"best_of":3`, `,"prompt_logprobs":0`, `,"echo":true`, `,"background":true`, `,"previous_response_id":"r"`, `,"max_tokens":1`} {
		f(path, members, true)
	}
	const generate = "/inference/v1/generate"
	f(generate, `,"sampling_params":{"n":1,"max_tokens":5}`, false)
	f(generate, `,"sampling_params":{"n":2}`, true)
	f(generate, `,"sampling_params":{"prompt_logprobs":1}`, true)
	f(generate, `,"sampling_params":{"max_tokens":1}`, true)
}
