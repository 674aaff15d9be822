package warmup

import (
	"encoding/json"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

func TestOneToken(t *testing.T) {
	f := func(in, model, priority, want string) {
		t.Helper()
		var p []byte
		if priority != "" {
			p = []byte(priority)
		}
		out, err := oneToken([]byte(in), model, p)
		if got := string(out); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	f(`{"model":"m","prompt":"p"}`, "", "", `{"model":"m","prompt":"p","max_tokens":1}`)
	f(`{"model":"m", "max_tokens": 900, "prompt": [1, 2],"cache_salt":"s"}`, "", "", `{"model":"m","max_tokens": 1,"prompt": [1, 2],"cache_salt":"s"}`)
	f(`{"stream":true,"stream_options":{"include_usage":true},"model":"a","n":4,"best_of":4,"min_tokens":5,"priority":3,"messages":[{"role":"user","content":"stream"}],"tools":[{"a":1}],"tool_choice":"auto","chat_template_kwargs":{"n":2},"max_completion_tokens":7,"max_tokens":9}`, "b\"", "",
		`{"model":"b\"","messages":[{"role":"user","content":"stream"}],"tools":[{"a":1}],"tool_choice":"auto","chat_template_kwargs":{"n":2},"max_completion_tokens":1}`)
	f(`{"model":"m","prompt":"p","priority":7}`, "", "-12", `{"model":"m","prompt":"p","priority":-12,"max_tokens":1}`)
	f(`{"model":"m","prompt":"p"}`, "", "5", `{"model":"m","prompt":"p","priority":5,"max_tokens":1}`)
	f(`{"model":"m","prompt":"p","kv_transfer_params":{"do_remote_decode":true}}`, "", "", `{"model":"m","prompt":"p","max_tokens":1}`)
	f(`{"model":"m","prompt":"p`, "", "", "")
	f(`[1]`, "", "", "")
}

// FuzzOneToken: for any valid body, the result is an object that asks for one token with the same
// prompt.
func FuzzOneToken(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"p","stream":true,"n":2}`), "x")
	f.Add([]byte(`{"max_completion_tokens":5,"max_tokens":5,"messages":[{"a":"\u0000"}]}`), "")
	f.Add([]byte(`{"n":1,"n":2,"prompt":1,"prompt":2}`), "m")
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, body []byte, model string) {
		out, err := oneToken(body, model, nil)
		if err != nil || !json.Valid(body) {
			return
		}
		doc, err := kvtransfer.Parse(out)
		if err != nil || !json.Valid(out) {
			t.Fatalf("%q becomes %q: %v", body, out, err)
		}
		before, err := kvtransfer.Parse(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"prompt", "messages", "tools", "cache_salt"} {
			if string(doc.Get(key)) != string(before.Get(key)) {
				t.Errorf("%q becomes %q", body, out)
			}
		}
		one, other := doc.Get("max_tokens"), doc.Get("max_completion_tokens")
		if string(one)+string(other) != "1" || doc.Get("stream") != nil || doc.Get("n") != nil {
			t.Errorf("%q becomes %q", body, out)
		}
	})
}
