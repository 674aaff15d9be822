//go:build engines

package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// families maps model families to sessions with the same kind of cache. types are values of
// model_type in config.json.
var families = []struct {
	name, session string
	types         []string
	less          bool // predictions may be lower than the reuse
}{
	{"Llama, Qwen 2.5 and 3, DeepSeek V3, GLM, Kimi K2, MiniMax", "full-16", []string{"llama", "qwen2", "qwen3", "deepseek_v3", "glm4_moe", "kimi_k2", "minimax"}, false},
	{"the same with MTP or EAGLE, tokens hashed ahead", "full-16-ahead", []string{"deepseek_v3"}, false},
	{"DeepSeek V3.2 and V4, Kimi K3, Inkling", "full-64", []string{"deepseek_v32", "deepseek_v4", "kimi_k3", "inkling"}, false},
	{"gpt-oss", "full-window", []string{"gpt_oss"}, false},
	{"Gemma 3", "full-windows", []string{"gemma3"}, false},
	{"Gemma 4, MiMo", "full-small-windows", []string{"gemma4", "mimo"}, false},
	{"Llama 4 (chunks shorter than its own 8,192 tokens)", "full-chunked", []string{"llama4"}, true},
	{"Qwen3-Next, Qwen 3.5", "full-states", []string{"qwen3_next", "qwen3_5"}, false},
	{"Nemotron-H, Granite 4", "full-state", []string{"nemotron_h", "granitemoehybrid"}, false},
	{"Mistral 7B (windows alone)", "window-only", []string{"mistral"}, true},
}

// builds returns how the prompts of a model are built.
func builds(t *testing.T, modelType string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{
		"config.json":           fmt.Sprintf(`{"model_type":%q}`, modelType),
		"chat_template.jinja":   "x",
		"tokenizer_config.json": "{}",
		"tokenizer.json":        `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := prompt.Load(dir, prompt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m.EngineOnly() {
		return "engine renders, else approximate"
	}
	return "here"
}

// says describes a session for the table.
func (c *tally) says() string {
	switch {
	case c == nil || c.absent != "":
		return "not there"
	case c.exact() == c.total:
		return "exact"
	case c.under == c.there && c.there > 0:
		return "approximate: nothing of it is followed"
	}
	return fmt.Sprintf("%d of %d exact, %d under, %d over", c.exact(), c.total, c.under, c.over)
}

// TestCoverage prints, for each family of models, how prompts are built and how predictions from
// the published events compare with the engine's reuse.
func TestCoverage(t *testing.T) {
	var names []string
	for _, f := range families {
		names = append(names, f.session)
	}
	of := map[string]map[string]*tally{}
	for _, version := range versions {
		of[version] = map[string]*tally{}
		args := append([]string{"--chats", fmt.Sprint(*chats), "--seed", fmt.Sprint(*seed)}, names...)
		for _, c := range sessions(t, python(t, version, "managers.py", args...)) {
			of[version][c.name] = c
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| family | its prompts are built | vLLM %s |\n|---|---|---|---|---|\n", strings.Join(versions, " | "))
	for _, f := range families {
		by := builds(t, f.types[0])
		for _, other := range f.types[1:] {
			if b := builds(t, other); b != by {
				t.Errorf("%s: prompts of %s: %s, of %s: %s", f.name, f.types[0], by, other, b)
			}
		}
		fmt.Fprintf(&table, "| %s | %s |", f.name, by)
		for _, version := range versions {
			c := of[version][f.session]
			fmt.Fprintf(&table, " %s |", c.says())
			if c != nil && c.over > 0 {
				t.Errorf("%s, vLLM %s: %d of %d over; %s", f.name, version, c.over, c.total, c.first)
			}
		}
		table.WriteString("\n")
		if c := of[versions[0]][f.session]; c == nil || c.there == 0 || c.under > 0 && !f.less {
			t.Errorf("%s, vLLM %s: %s", f.name, versions[0], c.says())
		}
	}
	t.Logf("\n%s", table.String())
}
