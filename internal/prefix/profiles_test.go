package prefix

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Each endpoint is matched by its engine's rendering of the prompt. If this rendering is unknown,
// the endpoint is not matched exactly.
func TestEndpointsAreMatchedByTheirOwnRendering(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	guess, index := approx.New(approx.Options{Hasher: h}), indexer.New(indexer.Options{Hasher: h})
	var profiles Profiles
	models := letterChats(t, h, guess, &profiles)
	m := New(Options{Index: index, Approx: guess, Models: models, Profiles: &profiles})
	all := endpoint.NewPool(endpoint.PoolOptions{})
	all.Set(fleetOf(4))
	eps := all.Snapshot().Endpoints
	for i, engine := range []struct{ kind, version string }{{"vllm", "0.33.0"}, {"vllm", "0.33.0"}, {"sglang", "0.5.23"}, {"trtllm-serve", "1.3.0"}} {
		profiles.Set(eps[i].ID, prompt.ProfileOf(engine.kind, engine.version))
		eps[i].SetGauges(endpoint.Gauges{BlockSize: 2})
	}
	const body = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"abababab"},{"type":"text","text":"cdcdcdcd"}]}]}`
	store := func(ep *endpoint.Endpoint, text string) {
		root := h.Root(block.Scope{Space: block.SpaceText, Model: "m"})
		d, key := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root}}}, root
		for i := 0; i+2 <= len(text); i += 2 {
			key = h.Child(key, []byte(text[i:i+2]))
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(i + 1), Key: key, Bytes: 2, Tokens: 2})
		}
		d.Ops[0].N = uint32(len(d.Blocks))
		index.Apply(block.Source{Endpoint: ep.ID}, &d)
	}
	store(eps[0], "abababab\ncdcdcdcdx.")
	store(eps[1], "abababab cdcdcdcdx.")
	store(eps[2], "abababab cdcdcdcdx.")
	store(eps[3], "abababab\ncdcdcdcdx.")
	r := &request.Request{Path: "/v1/chat/completions", Body: []byte(body)}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	models.Fill(t.Context(), r)
	held := make([]cycle.PrefixMatch, len(eps))
	m.Match(t.Context(), r, eps, held)
	for i, want := range []int32{18, 8, 18, -1} { // tokens: the text has 18 bytes
		if got := held[i].Precise; got != want {
			t.Errorf("endpoint %d: %d tokens predicted, want %d", i, got, want)
		}
	}
	models.Release(r)
	profiles.Forget(eps[2].ID)
	profiles.Forget(eps[3].ID)
	models.Fill(t.Context(), r)
	if len(r.Variants) != 0 {
		t.Errorf("%d variants for engines of one kind, want none", len(r.Variants))
	}
}

// letterChats is lettersModel with a template that prints contents and a dot.
func letterChats(t *testing.T, h block.Hasher, guess *approx.Index, profiles *Profiles, config ...string) *Models {
	t.Helper()
	ids := map[string]int{"Ġ": 0, "Ċ": 1, ".": 2}
	for c := 'a'; c <= 'z'; c++ {
		ids[string(c)] = int(c-'a') + 3
	}
	dir := t.TempDir()
	for name, v := range map[string]any{
		"tokenizer.json": map[string]any{
			"model":         map[string]any{"type": "BPE", "vocab": ids, "merges": []string{}},
			"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
			"decoder":       map[string]any{"type": "ByteLevel"},
		},
		"tokenizer_config.json": map[string]any{"chat_template": "{% for m in messages %}{{ m.content }}x{% endfor %}"},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range config {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	models, err := OpenModels([]ModelOptions{{Name: "m", Path: dir}}, ModelsOptions{Hasher: h, Approx: guess, Profiles: profiles})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(models.Close)
	if err := models.Registry().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return models
}

// Events of vLLM before 0.18 do not mark blocks of salted prompts. A salted prompt is not matched
// exactly at such an engine, and after the first one the endpoint is not exact any more.
func TestSaltsThatEventsDoNotName(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	guess, index := approx.New(approx.Options{Hasher: h}), indexer.New(indexer.Options{Hasher: h})
	var profiles Profiles
	models := letterChats(t, h, guess, &profiles)
	m := New(Options{Index: index, Approx: guess, Models: models, Profiles: &profiles})
	all := endpoint.NewPool(endpoint.PoolOptions{})
	all.Set(fleetOf(2))
	eps := all.Snapshot().Endpoints
	for i, version := range []string{"0.17.1", "0.33.0"} {
		profiles.Set(eps[i].ID, prompt.ProfileOf("vllm", version))
		eps[i].SetGauges(endpoint.Gauges{BlockSize: 2})
	}
	match := func(salt string) (*request.Request, []cycle.PrefixMatch) {
		r := &request.Request{Path: "/v1/chat/completions", Body: []byte(`{"model":"m",` + salt + `"messages":[{"role":"user","content":"abcdefgh"}]}`)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		models.Fill(t.Context(), r)
		held := make([]cycle.PrefixMatch, len(eps))
		m.Match(t.Context(), r, eps, held)
		return r, held
	}
	if _, held := match(""); held[0].Precise != 0 || held[1].Precise != 0 {
		t.Errorf("a prompt without salt: %d and %d, want both matched exactly", held[0].Precise, held[1].Precise)
	}
	salted, held := match(`"cache_salt":"tenant",`)
	if held[0].Precise != -1 || held[1].Precise != 0 {
		t.Errorf("a salted prompt: %d and %d, want it not matched exactly at the first alone", held[0].Precise, held[1].Precise)
	}
	for i, want := range []knowledge.State{knowledge.Approximate, knowledge.Exact} {
		m.Chosen(salted, eps[i])
		if state, reason := m.State(eps[i], knowledge.Exact); state != want || (reason == "") != (want == knowledge.Exact) {
			t.Errorf("endpoint %d after a salted prompt: %s, %q, want %s", i, state, reason, want)
		}
	}
	if m.IndexAccepted(eps[0].ID) || !m.IndexAccepted(eps[1].ID) {
		t.Error("decisions go by the events of the endpoint whose blocks are mixed, or not by those of the other")
	}
	m.Left(eps[:1])
	if state, _ := m.State(eps[0], knowledge.Exact); state != knowledge.Exact {
		t.Errorf("an engine that starts anew is %s, want exact", state)
	}
}

// vLLM before 0.20 announces blocks of all cache groups alike: prompts of a model that has
// several are not matched exactly there. Of other models they are.
func TestGroupsThatEventsDoNotName(t *testing.T) {
	for config, hybrid := range map[string]bool{
		`{"model_type":"qwen3"}`: false, `{"layer_types":["full_attention","full_attention"]}`: false, `{"sliding_window":4096}`: false,
		`{"layer_types":["full_attention","sliding_attention"]}`: true, `{"text_config":{"sliding_window_pattern":6}}`: true, `{"mamba_d_state":16}`: true,
	} {
		h := block.NewHasher(block.Seed{1})
		guess, index := approx.New(approx.Options{Hasher: h}), indexer.New(indexer.Options{Hasher: h})
		var profiles Profiles
		models := letterChats(t, h, guess, &profiles, config)
		m := New(Options{Index: index, Approx: guess, Models: models, Profiles: &profiles})
		all := endpoint.NewPool(endpoint.PoolOptions{})
		all.Set(fleetOf(2))
		eps := all.Snapshot().Endpoints
		for i, version := range []string{"0.18.1", "0.20.0"} {
			profiles.Set(eps[i].ID, prompt.ProfileOf("vllm", version))
			eps[i].SetGauges(endpoint.Gauges{BlockSize: 2})
		}
		r := &request.Request{Path: "/v1/chat/completions", Body: []byte(`{"model":"m","messages":[{"role":"user","content":"abcdefgh"}]}`)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		models.Fill(t.Context(), r)
		held := make([]cycle.PrefixMatch, len(eps))
		m.Match(t.Context(), r, eps, held)
		state, _ := m.State(eps[0], knowledge.Exact)
		newer, _ := m.State(eps[1], knowledge.Exact)
		if exact := held[0].Precise >= 0 && state == knowledge.Exact; exact == hybrid || held[1].Precise < 0 || newer != knowledge.Exact {
			t.Errorf("%s: matched %d and %d, states %s and %s; hybrid %v", config, held[0].Precise, held[1].Precise, state, newer, hybrid)
		}
	}
}

// TestProfilesFollow compares the published profiles with a plain map over random changes, and checks
// that the cost of a change does not grow with the pool.
func TestProfilesFollow(t *testing.T) {
	var p Profiles
	want, rng := map[block.EndpointID]prompt.Profile{}, rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		id, as := block.EndpointID(rng.IntN(300)), prompt.Profile(rng.IntN(4))
		if rng.IntN(3) == 0 {
			p.Forget(id)
			delete(want, id)
		} else {
			p.Set(id, as)
			want[id] = as
		}
		if got := p.Of(id); got != want[id] {
			t.Fatalf("profile of %d is %d, want %d", id, got, want[id])
		}
	}
	count := map[prompt.Profile]int{}
	for id := range block.EndpointID(400) {
		if got := p.Of(id); got != want[id] {
			t.Errorf("profile of %d is %d, want %d", id, got, want[id])
		}
	}
	for _, as := range want {
		count[as]++
	}
	kinds := p.all()
	if len(kinds) != len(count) {
		t.Errorf("%d kinds, want %d", len(kinds), len(count))
	}
	for i := 1; i < len(kinds); i++ {
		if count[kinds[i-1]] < count[kinds[i]] {
			t.Errorf("kinds %v are not in the order of their counts %v", kinds, count)
		}
	}
	for id := range block.EndpointID(10_000) {
		p.Set(id, 1)
	}
	next := prompt.Profile(1)
	if n := testing.AllocsPerRun(100, func() { next ^= 3; p.Set(5000, next) }); n > 8 {
		t.Errorf("a change in a pool of 10,000 makes %.0f allocations, want at most 8", n)
	}
	var bytes [2]runtime.MemStats
	runtime.ReadMemStats(&bytes[0])
	for range 100 {
		next ^= 3
		p.Set(5000, next)
	}
	runtime.ReadMemStats(&bytes[1])
	if n := (bytes[1].TotalAlloc - bytes[0].TotalAlloc) / 100; n > 2000 {
		t.Errorf("a change in a pool of 10,000 allocates %d bytes, want at most 2000", n)
	}
}
