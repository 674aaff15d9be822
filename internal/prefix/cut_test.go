package prefix

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest/pool"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// lettersModel has a token for each letter, and for "ab" and "cd". Another model, n, has
// the same.
func lettersModel(t *testing.T, h block.Hasher, guess *approx.Index) (*Models, *prompt.Model) {
	t.Helper()
	ids := map[string]int{"ab": 26, "cd": 27, "Ġ": 28}
	for c := 'a'; c <= 'z'; c++ {
		ids[string(c)] = int(c - 'a')
	}
	file, err := json.Marshal(map[string]any{
		"model":         map[string]any{"type": "BPE", "vocab": ids, "merges": []string{"a b", "c d"}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	models, err := OpenModels([]ModelOptions{{Name: "m", Path: dir}, {Name: "n", Path: dir}}, ModelsOptions{Hasher: h, Approx: guess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(models.Close)
	if err := models.Registry().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return models, models.Model("m")
}

// cutRig is one engine, and a replica that follows its events.
type cutRig struct {
	t      *testing.T
	model  *prompt.Model
	models *Models
	index  *indexer.Index
	reader *translate.Translator
	m      *Matcher
	eps    []*endpoint.Endpoint
}

func newCutRig(t *testing.T) *cutRig {
	h := block.NewHasher(block.Seed{1})
	guess := approx.New(approx.Options{Hasher: h})
	c := &cutRig{t: t, index: indexer.New(indexer.Options{Hasher: h})}
	c.models, c.model = lettersModel(t, h, guess)
	of := c.models.EventModel(&endpoint.Endpoint{Spec: endpoint.Spec{Models: []string{"m"}}})
	c.reader = translate.New(translate.Options{Index: c.index, Hasher: h, Model: of.Name, Vocabulary: of.Vocabulary, Canonical: of.Canonical})
	c.m = New(Options{Index: c.index, Approx: guess, Models: c.models, Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	all := endpoint.NewPool(endpoint.PoolOptions{})
	all.Set(fleetOf(1))
	c.eps = all.Snapshot().Endpoints
	c.eps[0].SetGauges(endpoint.Gauges{Engine: endpoint.EngineVLLM, BlockSize: pool.Block})
	return c
}

func (c *cutRig) read(events ...decode.Event) {
	var d block.Delta
	c.reader.Translate(&decode.Batch{Events: events}, &d)
	c.index.Apply(block.Source{}, &d)
}

// predicts returns the replica's prediction for a prompt of token ids or text.
func (c *cutRig) predicts(prompt any) (*request.Request, cycle.PrefixMatch) {
	c.t.Helper()
	return c.predictsOf("m", prompt)
}

// predictsOf is predicts for a request that asks for a model.
func (c *cutRig) predictsOf(model string, prompt any) (*request.Request, cycle.PrefixMatch) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"model": model, "prompt": prompt})
	if err != nil {
		c.t.Fatal(err)
	}
	r := &request.Request{Path: "/v1/completions", Body: body}
	if err := request.Parse(r); err != nil {
		c.t.Fatal(err)
	}
	r.Target = model
	c.models.Fill(c.t.Context(), r)
	held := make([]cycle.PrefixMatch, 1)
	c.m.Match(c.t.Context(), r, c.eps, held)
	c.models.Release(r)
	return r, held[0]
}

// cutAt tokenizes a text as the vocabulary does up to about a position, and letter by letter after
// it.
func (c *cutRig) cutAt(text string, at int) []uint32 {
	at = min(at, len(text))
	at = strings.LastIndexByte(text[:at]+" ", ' ') // a word's end
	ids := c.model.Encode(nil, []byte(text[:at]))
	for i := at; i < len(text); i++ {
		ids = c.model.Encode(ids, []byte(text[i:i+1]))
	}
	return ids
}

// TestCuts: for prompts with token ids, the prediction equals the engine's cached prefix of these
// ids. This holds for any tokenization of the same text, and for any cached length.
func TestCuts(t *testing.T) {
	c, engine := newCutRig(t), pool.New(3000)
	rng := rand.New(rand.NewPCG(9, 9))
	word := func() string {
		var w strings.Builder
		for range 2 + rng.IntN(6) {
			w.WriteString([]string{"ab", "cd", "x", "a", "q"}[rng.IntN(5)])
		}
		return w.String()
	}
	texts := make([]string, 12)
	hits, other := 0, 0
	for n := range 1500 {
		k := rng.IntN(len(texts))
		if len(texts[k]) > 3000 {
			texts[k] = ""
		}
		for range 20 + rng.IntN(20) { // more than two blocks, as only a prompt stores
			texts[k] += " " + word()
		}
		at := []int{0, len(texts[k]) / 2, len(texts[k])}[rng.IntN(3)]
		ids := c.cutAt(texts[k], at)
		want := engine.Hit(ids) * pool.Block
		_, held := c.predicts(ids)
		if int(held.Precise) != want {
			t.Fatalf("request %d, cut from byte %d of %d on: %d tokens predicted, %d there", n, at, len(texts[k]), held.Precise, want)
		}
		if want > 0 {
			hits++
		}
		if canonical := c.cutAt(texts[k], len(texts[k])); engine.Hit(canonical)*pool.Block > want {
			other++ // the usual tokenization of the text has a longer cached prefix
		}
		engine.Run(ids, false, false)
		c.read(engine.Take()...)
	}
	if hits < 500 || other < 100 {
		t.Errorf("%d prompts were held in part, %d of them more of another cut", hits, other)
	}
}

// TestCutAhead: if an engine also hashes tokens after each block, the first block is longer by
// these tokens. Short runs of texts and of token ids are still found.
func TestCutAhead(t *testing.T) {
	for _, ahead := range []int{0, 1, 3} {
		c := newCutRig(t)
		text := strings.Repeat("abcdx qab cdxq ", 40)
		ids := c.cutAt(text, len(text))
		const blocks = 5
		e := decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: pool.Block, Tokens: ids[:blocks*pool.Block]}
		for i := range blocks {
			e.Hashes = append(e.Hashes, block.EngineHash(i+1))
			e.Lookahead = append(e.Lookahead, ids[(i+1)*pool.Block:(i+1)*pool.Block+ahead]...)
		}
		c.read(e)
		for name, prompt := range map[string]any{"text": text, "ids": ids} {
			if _, held := c.predicts(prompt); held.Precise != blocks*pool.Block {
				t.Errorf("%d tokens ahead, %s: %d tokens predicted, not %d", ahead, name, held.Precise, blocks*pool.Block)
			}
		}
		if _, held := c.predicts(c.cutAt(text, 0)); held.Precise != 0 {
			t.Errorf("%d tokens ahead: %d tokens predicted of ids that are cut otherwise", ahead, held.Precise)
		}
	}
}

// TestCutsAreNamed: if only prompts with token ids have fewer predicted blocks than the engine has,
// the verdict names these prompts. The endpoint's state stays, with or without matching text
// prompts.
func TestCutsAreNamed(t *testing.T) {
	for _, beside := range []bool{false, true} {
		c := newCutRig(t)
		for n := range 40 {
			for _, prompt := range []any{strings.Repeat("abcdx ", 60), []uint32{1, 2, 3}} {
				_, isText := prompt.(string)
				r, held := c.predicts(prompt)
				held.Precise, held.Approximate = 64, 320
				cached := 320
				if isText {
					if !beside {
						continue
					}
					held.Precise, held.Approximate = 320, 320
				}
				c.m.o.Now = func() time.Time { return time.Unix(1_800_000_000+int64(n), 0) }
				c.m.Finished(r, c.eps[0], held, request.Outcome{Status: 200, Complete: true, Usage: request.Usage{
					Seen: true, CachedSeen: true, PromptTokens: 400, CachedTokens: cached,
				}})
			}
		}
		state, reason := c.m.State(c.eps[0], c.m.o.Read(0))
		if fmt.Sprint(state) != "exact" || !strings.HasPrefix(reason, "completions of token ids: its events do not identify blocks after tokens that are not the canonical") {
			t.Errorf("beside texts: %v: %v %q", beside, state, reason)
		}
	}
}

// TestOtherModelIsNamed: if an endpoint's events are read for one model and requests use another
// model, the events match nothing. The verdict names both models.
func TestOtherModelIsNamed(t *testing.T) {
	c, engine := newCutRig(t), pool.New(3000)
	text := strings.Repeat("abcdx qab cdxq ", 40)
	ids := c.cutAt(text, len(text))
	engine.Run(ids, false, false)
	c.read(engine.Take()...)
	if _, held := c.predicts(text); held.Precise == 0 {
		t.Fatal("nothing is known of the model whose events are read")
	}
	for n := range 50 {
		r, held := c.predictsOf("n", text)
		if held.Precise > 0 {
			t.Fatalf("%d tokens of another model's prompt", held.Precise)
		}
		c.m.o.Now = func() time.Time { return time.Unix(1_800_000_000+int64(n), 0) }
		c.m.Finished(r, c.eps[0], held, request.Outcome{Status: 200, Complete: true, Usage: request.Usage{
			Seen: true, CachedSeen: true, PromptTokens: len(ids), CachedTokens: engine.Hit(ids) * pool.Block,
		}})
	}
	state, reason := c.m.State(c.eps[0], c.m.o.Read(0))
	if fmt.Sprint(state) != "mismatched" || !strings.HasPrefix(reason, `its events are read as those of model "m", and requests ask for "n": set the endpoint's model`) {
		t.Errorf("%v %q", state, reason)
	}
}

// TestOneCountIsNoBlock: an engine does not report its block size, and its answers repeat a single
// count of cached tokens, as from one system prompt. The count is not the block size, so
// predictions that miss all of these tokens are wrong.
func TestOneCountIsNoBlock(t *testing.T) {
	for _, counts := range [][]int{{2048}, {2048, 4096}} {
		var r record
		for i := range 40 {
			r.add(comparison{prompt: 5000, cached: counts[i%len(counts)], guess: -1}, time.Unix(1_800_000_000+int64(i), 0))
		}
		if r.wrong != under {
			t.Errorf("counts of %v: %+v", counts, r)
		}
	}
}
