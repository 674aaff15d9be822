package sim

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestMessages: the Messages API has the text and the tokens of the same chat, whole and streamed, and the KV transfer
// of a prompt that is computed for another engine. Refusals have the chat's status.
func TestMessages(t *testing.T) {
	d := newDisagg(t, time.Minute, false)
	var want body
	do(t, d.d, "POST", "/v1/chat/completions", chatBody(d.text, `,"max_tokens":8`)).decoded(t, 200, &want)
	ask := func(e *Engine, more string) response {
		text, _ := json.Marshal(d.text) // always encodes
		return do(t, e, "POST", "/v1/messages", `{"max_tokens":8,"messages":[{"role":"user","content":`+string(text)+`}]`+more+`}`)
	}
	var got struct {
		Content []struct{ Text string }
		Reason  string `json:"stop_reason"`
		Usage   struct {
			Input  int `json:"input_tokens"`
			Cached int `json:"cache_read_input_tokens"`
		}
		KV json.RawMessage `json:"kv_transfer_params"`
	}
	check := func(name string) {
		t.Helper()
		if len(got.Content) != 1 || got.Content[0].Text != want.Choices[0].Message.Content || got.Reason != "max_tokens" || got.Usage.Input+got.Usage.Cached != want.Usage.PromptTokens {
			t.Errorf("%s: %+v, want the chat %+v", name, got, want)
		}
	}
	ask(d.d, "").decoded(t, 200, &got)
	check("whole")
	var text strings.Builder
	for line := range strings.Lines(string(ask(d.d, `,"stream":true`).body)) {
		var event struct{ Delta struct{ Text string } }
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &event) == nil {
			text.WriteString(event.Delta.Text)
		}
	}
	if text.String() != want.Choices[0].Message.Content {
		t.Errorf("streamed: %q, want %q", &text, want.Choices[0].Message.Content)
	}
	ask(d.p, `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}`).decoded(t, 200, &got)
	if !strings.Contains(string(got.KV), "remote_block_ids") {
		t.Fatalf("prefill returns the KV transfer %s", got.KV)
	}
	if err := d.d.Restart(RestartOptions{}); err != nil { // it has the prompt
		t.Fatal(err)
	}
	ask(d.d, `,"kv_transfer_params":`+string(got.KV)).decoded(t, 200, &got)
	check("pulled")
	if r := ask(d.d, `,"model":"other"`); r.status != 404 {
		t.Errorf("unknown model: status %d, want 404", r.status)
	}
}
