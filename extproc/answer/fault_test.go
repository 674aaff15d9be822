package answer

import (
	"strings"
	"testing"
)

// TestFault: an error with the status of an answer is detected, split at any byte.
func TestFault(t *testing.T) {
	const events, whole = "text/event-stream; charset=utf-8", "application/json"
	chunk := "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":{\"}}]}\n\n"
	for _, c := range []struct {
		name, kind, body string
		want             Fault
	}{
		{"a stream", events, chunk + chunk + "data: [DONE]\n\n", Unfinished},
		{"a stream with comments", events, ": ping\n\n" + chunk + "data:[DONE]\r\n\r\n", Unfinished},
		{"no closing event", events, chunk + chunk, Unclosed},
		{"nothing", events, "", Broken},
		{"nothing but the closing event", events, "data: [DONE]\n\n", Broken},
		{"nothing but comments", events, ": ping\n\n: ping\n\n", Broken},
		{"an error at once", events, `data: {"error": {"message": "the engine core died", "type": "InternalServerError", "code": 500}}` + "\n\ndata: [DONE]\n\n", Broken},
		{"an error later", events, chunk + `data:{"error":{"message":"out of memory","code":500}}` + "\n\ndata: [DONE]\n\n", Broken},
		{"an error at the very end", events, chunk + `data: {"object":"error","message":"died"}`, Broken},
		{"an event named so", events, "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"api_error\", \"message\": \"died\"}}\n\n", Broken},
		{"a response that failed", events, "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\"}}}\n\n", Broken},
		{"a response", events, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"no\"}\n\n", Unclosed},
		{"the client's error", events, chunk + `data: {"error":{"message":"too long","type":"BadRequestError","code":400}}` + "\n\ndata: [DONE]\n\n", Sound},
		{"a full queue", events, chunk + `data: {"type":"error","error":{"type":"overloaded_error"}}` + "\n\ndata: [DONE]\n\n", Sound},
		{"the client's words in an error", events, `data: {"error":{"message":"cannot read {\"code\":400}","code":500}}` + "\n\ndata: [DONE]\n\n", Broken},
		{"an answer", whole, ` {"id": "chatcmpl-1", "error": {"code": 500}, "choices": [{"message": {"content": "a"}}]}`, Sound},
		{"a list", whole, `[{"choices": [{"text": "a"}]}]`, Sound},
		{"no error", whole, `{"error": null, "choices": [{"text": "a"}]}`, Sound},
		{"no choices", whole, `{"choices": []}`, Empty},
		{"no text", whole, `{"choices": [{"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]}`, Empty},
		{"an aborted answer", whole, `{"choices": [{"message": {"content": "half of it"}, "finish_reason": "abort"}]}`, Empty},
		{"the word in the text", whole, `{"choices": [{"message": {"content": "\"finish_reason\": \"abort\""}, "finish_reason": "stop"}]}`, Sound},
		{"a call", whole, `{"choices": [{"message": {"content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]}`, Sound},
		{"an aborted stream", events, "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"abort\"}]}\n\ndata: [DONE]\n\n", Empty},
		{"an aborted stream with spaces", events, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\" : \"abort\"}]}\n\ndata: [DONE]\n\n", Empty},
		{"an abort of the second choice", events, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"},{\"finish_reason\":\"abort\"}]}\n\ndata: [DONE]\n\n", Empty},
		{"the word as another member", events, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\",\"b\":\"abort\"}]}\n\ndata: [DONE]\n\n", Sound},
		{"a stream without text", events, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: [DONE]\n\n", Empty},
		{"an error for an answer", whole, "\n{ \"error\" : {\"message\": \"died\", \"code\": 500}}", Broken},
		{"an error in words", whole, `{"error":"died"}`, Broken},
		{"the client's error for an answer", whole, `{"error":{"message":"no","type":"invalid_request_error"}}`, Sound},
		{"another server", "text/html", "<!doctype html><p>Welcome!", Broken},
		{"no body", whole, "", Broken},
		{"blanks", whole, " \n", Broken},
	} {
		for _, size := range []int{1, 7, 1 << 10} {
			var s Scan
			s.Open("application/json", "gzip")
			s.Write([]byte("leftovers"))
			s.Reset()
			s.Open(c.kind, "")
			for rest := []byte(c.body); len(rest) > 0; {
				n := min(size, len(rest))
				s.Write(rest[:n])
				rest = rest[n:]
			}
			if got := s.Fault(); got != c.want {
				t.Errorf("%s, in pieces of %d: %v, want %v", c.name, size, got, c.want)
			}
		}
	}
	var s Scan
	s.Open(events, "gzip")
	s.Write([]byte("what nobody can read"))
	if got := s.Fault(); got != Sound {
		t.Errorf("compressed: %v", got)
	}
}

// TestOtherModel: the name of the model that an answer carries.
func TestOtherModel(t *testing.T) {
	for _, c := range []struct {
		body string
		want bool
	}{
		{`{"id":"1","model":"a","choices":[]}`, false},
		{`{"id":"1","model": "alias"}`, false},
		{`{"id":"1","model":"b"}`, true},
		{`{"id":"1"}`, false},
		{`{"id":"1","model":null}`, false},
		{`{"id":"1","model":"b\"c"}`, false},
		{`{"id":"1","model":"` + strings.Repeat("b", 200) + `"}`, false},
	} {
		var s Scan
		s.Open("application/json", "")
		s.Write([]byte(c.body))
		if got := s.OtherModel("a", "alias"); got != c.want {
			t.Errorf("OtherModel() of %.40s = %v, want %v", c.body, got, c.want)
		}
	}
}
