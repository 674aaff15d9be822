package prefix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest/pool"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// picturesTemplate prints chats with images as the Qwen-VL models do.
const picturesTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% elif p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// firstPicture is the first of the ids with which the pool distinguishes media. Its hashes cover
// the names of media, like the engines' hashes.
const firstPicture = 1 << 24

// album is an engine that looks at pictures.
type album struct {
	t      *testing.T
	models *Models
	pool   *pool.Pool
	pad    uint32
	names  []string // of the pictures that it has seen
}

// tokens returns a rendered prompt as the pool hashes it: the name of each medium contains its
// number of tokens.
func (a *album) tokens(text []byte) (ids []uint32) {
	p := a.models.Model("m")
	for {
		at, which := -1, 0
		for i, name := range a.names {
			if j := bytes.Index(text, block.AppendMedium(nil, []byte(name))); j >= 0 && (at < 0 || j < at) {
				at, which = j, i
			}
		}
		if at < 0 {
			return p.Vocab().EncodePrepared(ids, text)
		}
		ids = p.Vocab().EncodePrepared(ids, text[:at])
		for i := range 1 + 37*which {
			ids = append(ids, firstPicture+uint32(which)<<12+uint32(i))
		}
		text = text[at+block.MediumSize:]
	}
}

// rendered returns a chat as the engine renders it, with the name of each picture.
func (a *album) rendered(messages []any, rgb string) []uint32 {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		a.t.Fatal(err)
	}
	body = bytes.ReplaceAll(body, []byte(`"image_url":{"url":"data:image/png;base64,`+rgb+`"}`), []byte(`"uuid":"`+a.names[0]+`"`))
	r := parsedRequest(a.t, a.models, body)
	defer a.models.Release(r)
	return a.tokens(bytes.TrimSuffix(r.Exact[0].Bytes, []byte("<|im_start|>assistant\n")))
}

// published is an event of the pool as vLLM publishes it.
func (a *album) published(e decode.Event) decode.Event {
	ids, size := append([]uint32(nil), e.Tokens...), int(e.BlockSize)
	for i, id := range ids {
		if id < firstPicture {
			continue
		}
		ids[i] = a.pad
		if in, at := i%size, int(id&0xfff); at == 0 || in == 0 {
			e.Extra = append(e.Extra, decode.ExtraKey{Block: uint32(i / size), Kind: decode.ExtraPair,
				Value: []byte(a.names[(id-firstPicture)>>12]), Offset: int64(in - at)})
		}
	}
	e.Tokens = ids
	return e
}

// TestMediaChats: chats with images, by uuid and by content, are matched from turn to turn beyond
// the images. The prediction equals the reuse of the engine's pool. Images in data URLs are
// recognised by the names that vLLM gives them.
func TestMediaChats(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	template := filepath.Join(t.TempDir(), "pictures.jinja")
	if err := os.WriteFile(template, []byte(picturesTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	x, ap := indexer.New(indexer.Options{Hasher: h}), approx.New(approx.Options{Hasher: h})
	ms, err := OpenModels([]ModelOptions{{Name: "m", Path: parts.Model(t, "qwen3"), Template: template, Aliases: []string{"org/m"}}}, ModelsOptions{Hasher: h, Approx: ap})
	if err != nil {
		t.Fatal(err)
	}
	defer ms.Close()
	if err := ms.Registry().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := endpoint.NewPool(endpoint.PoolOptions{})
	known.Set(fleetOf(1))
	eps := known.Snapshot().Endpoints
	eps[0].SetGauges(endpoint.Gauges{Engine: endpoint.EngineVLLM, BlockSize: pool.Block})
	em := ms.EventModel(&endpoint.Endpoint{Spec: endpoint.Spec{Models: []string{"m"}}})
	tr := translate.New(translate.Options{Source: block.Source{Endpoint: eps[0].ID}, Index: x, Hasher: h, Model: em.Name,
		Vocabulary: em.Vocabulary, Canonical: em.Canonical, Medium: em.Medium})
	m := New(Options{Index: x, Approx: ap, Models: ms})

	rgb, named := vllmPicture(t)
	a := &album{t: t, models: ms, pool: pool.New(3000), names: []string{named, "cat", "dog", "a map", "a chart"}}
	a.pad = ms.Model("m").Vocab().EncodePrepared(nil, []byte("<|image_pad|>"))[0]
	rng := rand.New(rand.NewPCG(15, 26))
	turn := func(role string, pictures bool) map[string]any {
		content := []any{map[string]any{"type": "text", "text": strings.TrimSpace(strings.Repeat("what do you see? ", rng.IntN(5))) + fmt.Sprint(rng.IntN(1000))}}
		if pictures && rng.IntN(2) == 0 {
			if i := rng.IntN(len(a.names)); i == 0 {
				content = append(content, map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + rgb}})
			} else {
				content = append([]any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://x/y.png"}, "uuid": a.names[i]}}, content...)
			}
		}
		return map[string]any{"role": role, "content": content}
	}
	chats, exact, past := make([][]any, 12), 0, 0
	for op := range 400 {
		i := rng.IntN(len(chats))
		if len(chats[i]) > 20 {
			chats[i] = nil
		}
		chats[i] = append(chats[i], turn("user", true))
		ids := a.rendered(chats[i], rgb)
		r := mediaRequest(t, ms, chats[i])
		var held [1]cycle.PrefixMatch
		m.Match(t.Context(), r, eps, held[:])
		got, want := int(held[0].Run.Total()), a.pool.Hit(ids)*pool.Block
		if got != want {
			t.Errorf("operation %d: %d tokens predicted, %d there, of %d", op, got, want, len(ids))
		} else {
			exact++
		}
		for k, id := range ids {
			if id >= firstPicture {
				if want > k {
					past++
				}
				break
			}
		}
		ms.Release(r)
		// The answer is generated behind the prompt, and both are kept.
		chats[i] = append(chats[i], turn("assistant", false))
		a.pool.Run(a.rendered(chats[i], rgb), false, false)
		var batch decode.Batch
		for _, e := range a.pool.Take() {
			batch.Events = append(batch.Events, a.published(e))
		}
		var d block.Delta
		tr.Translate(&batch, &d)
		x.Apply(block.Source{Endpoint: eps[0].ID}, &d)
	}
	t.Logf("%d of 400 exact, %d past an image", exact, past)
	if past < 100 {
		t.Errorf("%d matches went past an image", past)
	}
	if s := ms.Status()[0].Media; !strings.Contains(s, "seen in its events") {
		t.Errorf("media: %s", s)
	}
}

// vllmPicture returns an image, in base64, and the name that vLLM 0.23 gives it for the model org/m.
func vllmPicture(t *testing.T) (data, name string) {
	t.Helper()
	b, err := os.ReadFile("../prompt/media/testdata/identifiers.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		RGB   string `json:"png_rgb_4x3_base64"`
		Cases []struct{ Version, Item, ID string }
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Cases {
		if c.Version == "0.23" && c.Item == "png_rgb" {
			return v.RGB, c.ID
		}
	}
	t.Fatal("no such case")
	return "", ""
}

func mediaRequest(t *testing.T, ms *Models, messages []any) *request.Request {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		t.Fatal(err)
	}
	return parsedRequest(t, ms, body)
}

func parsedRequest(t *testing.T, ms *Models, body []byte) *request.Request {
	t.Helper()
	r := &request.Request{Path: "/v1/chat/completions", Headers: noHeaders{}, Body: body}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	ms.Fill(t.Context(), r)
	if len(r.Exact) == 0 {
		t.Fatal("not rendered")
	}
	return r
}
