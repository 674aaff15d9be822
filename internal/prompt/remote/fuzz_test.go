package remote

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzEngineAnswer reads any answer of an engine.
func FuzzEngineAnswer(f *testing.F) {
	f.Add([]byte(`{"token_ids":[1,2],"features":{"mm_placeholders":{"image":[{"offset":1}]}}}`))
	f.Add([]byte(`[[1],[{"prompt_token_ids":[3]}]]`))
	f.Add([]byte(`{"count":2,"tokens":[1,2]}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		probeIDs(data)
		ids, info, err := renderedIDs(data)
		if err == nil && len(ids) != info.Tokens {
			t.Fatalf("%d ids, %d tokens", len(ids), info.Tokens)
		}
	})
}
