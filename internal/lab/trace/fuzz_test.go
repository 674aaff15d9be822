package trace

import (
	"bytes"
	"testing"
)

// FuzzRead reads any file as a trace.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"timestamp\":1,\"input_length\":600,\"output_length\":3,\"hash_ids\":[1,2]}\n{\"timestamp\":2,\"input_length\":1,\"hash_ids\":[]}\n"))
	f.Add([]byte("{\"timestamp\":-1e300,\"input_length\":9007199254740993,\"hash_ids\":[0]}"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data), ReadOptions{})
		if err == nil && got == nil {
			t.Fatal("no trace and no error")
		}
	})
}
