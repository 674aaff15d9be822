package prompt

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab"
)

// TestConcurrentUse renders and checks from many goroutines; each must get the same results as a
// single goroutine.
func TestConcurrentUse(t *testing.T) {
	m, _ := realModel(t, "qwen3")
	g := newGen(9)
	type job struct{ body, want []byte }
	var jobs []job
	for range 40 {
		body, err := json.Marshal(g.chat())
		if err != nil {
			t.Fatal(err)
		}
		if want, _, err := m.Render(t.Context(), nil, body, KindChat); err == nil {
			jobs = append(jobs, job{body, want})
		}
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			var dst []byte
			for i := range jobs {
				j := jobs[(i*7+w)%len(jobs)]
				var err error
				if dst, _, err = m.Render(t.Context(), dst[:0], j.body, KindChat); err != nil || string(dst) != string(j.want) {
					t.Errorf("got %q, %v; want %q", dst, err, j.want)
				}
				ids := m.EncodeRendered(nil, dst)
				if v, n := m.Canonical(vocab.Window{Block: ids, Root: true, Final: true}); v != vocab.Canonical {
					t.Errorf("%q: verdict %d at %d", dst, v, n)
				}
			}
		})
	}
	wg.Wait()
}

func TestCanonicalWithoutEncoder(t *testing.T) {
	m := smallModel(t, map[string]string{"tokenizer.json": `{"model":{"type":"WordPiece","vocab":{"a":0}}}`}, Options{})
	if v, n := m.Canonical(vocab.Window{Block: []uint32{0}, Root: true, Final: true}); v != vocab.Unknown || n != 0 {
		t.Errorf("verdict %d at %d", v, n)
	}
	if m.NewChecker() != nil || !m.BoundarySafe([]byte("ab"), 1) {
		t.Error("checks without an encoder")
	}
}
