package trace

import (
	"bytes"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzRead reads any file as a trace.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"timestamp\":1,\"input_length\":600,\"output_length\":3,\"hash_ids\":[1,2]}\n{\"timestamp\":2,\"input_length\":1,\"hash_ids\":[]}\n"))
	f.Add([]byte("{\"timestamp\":-1e300,\"input_length\":9007199254740993,\"hash_ids\":[0]}"))
	f.Add([]byte("\x1f\x8b"))
	f.Add([]byte("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"))
	f.Add([]byte("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,1,ChatGPT,472,18,490,Conversation log\n"))
	f.Add([]byte("arrived_at,num_prefill_tokens,num_decode_tokens\n.5,12.0,3\n"))
	f.Add([]byte(`[{"id":"x","conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"hi"}]}]`))
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data), ReadOptions{})
		if err == nil && got == nil {
			t.Fatal("no trace and no error")
		}
	})
}
