package prompt

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt/media"
)

// picturesModel is a model whose template prints <s> for an image and </s> for an audio.
func picturesModel(t testing.TB, names *media.Names) *Model {
	t.Helper()
	files := folderOf("{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'image' %}({{ '<s>' }}){% elif p.type == 'audio' %}</s>{% elif p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{{ '\n' }}{% endfor %}")
	n := len(vocabOf(smallVocab))
	files["config.json"] = `{"image_token_id":` + itoa(n) + `,"audio_token_index":` + itoa(n+1) + `}`
	return smallModel(t, files, Options{Media: names})
}

func vocabOf(file string) map[string]int {
	var v struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal([]byte(file), &v); err != nil {
		panic(err)
	}
	return v.Model.Vocab
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// pictures reads the images of the identifiers' vectors, and the name of the first by
// vLLM 0.33.
func pictures(t testing.TB) (rgb, name string) {
	t.Helper()
	b, err := os.ReadFile("media/testdata/identifiers.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		RGB   string `json:"png_rgb_4x3_base64"`
		Cases []struct{ ID string }
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v.RGB, v.Cases[0].ID
}

// TestRenderMedia checks, for chats of every kind, that an image is rendered as its engine name and
// that the prompt continues after it.
func TestRenderMedia(t *testing.T) {
	rgb, named := pictures(t)
	m := picturesModel(t, media.New("org/m"))
	mark := func(name string) string { return string(block.AppendMedium(nil, []byte(name))) }
	user := func(parts string) string {
		return `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},` + parts + `,{"type":"text","text":"b"}]}],"add_generation_prompt":false}`
	}
	url := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + rgb + `"}}`
	checkMedia(t, m, KindChat, []rendering{
		{name: "uuid", body: user(`{"type":"image_url","image_url":null,"uuid":"cat"}`), want: "[user]a(" + mark("cat") + ")b\n"},
		{name: "content", body: user(url), want: "[user]a(" + mark(named) + ")b\n"},
		{name: "two and an audio", body: user(`{"type":"input_audio","uuid":"x"},` + url + `,{"type":"image_url","uuid":"y"}`),
			want: "[user]a" + mark("x") + "(" + mark(named) + ")(" + mark("y") + ")b\n"},
		{name: "URL", body: user(`{"type":"image_url","image_url":{"url":"https://a/b.png"}}`), want: "[user]a(", truncated: true},
		{name: "URL behind one with a name", body: user(`{"type":"image_url","uuid":"y"},{"type":"image_url","image_url":"https://a/b.png"}`),
			want: "[user]a(" + mark("y") + ")(", truncated: true},
		{name: "audio without a name", body: user(`{"type":"input_audio","input_audio":{"data":"` + rgb + `"}}`), want: "[user]a", truncated: true},
		{name: "processor's settings", body: strings.Replace(user(`{"type":"image_url","uuid":"y"}`), "{", `{"mm_processor_kwargs":{"num_crops":4},`, 1), want: "[user]a(", truncated: true},
		{name: "no settings", body: strings.Replace(user(`{"type":"image_url","uuid":"y"}`), "{", `{"mm_processor_kwargs":{},`, 1), want: "[user]a(" + mark("y") + ")b\n"},
		{name: "placeholder in a text", body: user(`{"type":"image_url","uuid":"y"},{"type":"text","text":"<s>"}`), want: "[user]a", truncated: true},
		{name: "video, of which the template prints nothing", body: user(`{"type":"video_url","uuid":"y"}`), want: "[user]a", truncated: true},
		{name: "no base64", body: user(`{"type":"image_url","image_url":{"url":"data:image/png;base64,%%%%"}}`), want: "[user]a(", truncated: true},
		{name: "not base64", body: user(`{"type":"image_url","image_url":{"url":"data:image/png,abc"}}`), want: "[user]a(", truncated: true},
		{name: "embeddings", body: user(`{"type":"image_embeds","image_embeds":"x","uuid":"y"}`), want: "[user]a(", truncated: true},
	})
	checkMedia(t, m, KindMessages, []rendering{
		{name: "image", body: `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + rgb + `"}},{"type":"text","text":"b"}]}]}`,
			want: "[user](" + mark(named) + ")b\n"},
	})
	checkMedia(t, m, KindResponses, []rendering{
		{name: "image", body: `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,` + rgb + `"},{"type":"input_text","text":"b"}]}]}`,
			want: "<s>[user](" + mark(named) + ")b\n</s>"},
	})
}

// checkMedia is checkRenderings that also compares Info.Media with the rendered output.
func checkMedia(t *testing.T, m *Model, kind Kind, cases []rendering) {
	t.Helper()
	checkRenderings(t, m, kind, cases)
	for _, c := range cases {
		if _, info, _ := m.Render(t.Context(), nil, []byte(c.body), kind); info.Media == info.Truncated {
			t.Errorf("%s: %+v", c.name, info)
		}
	}
}
