package folder

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzTokenizerConfig loads any tokenizer_config.json.
func FuzzTokenizerConfig(f *testing.F) {
	for _, s := range []string{
		`{"chat_template":"{{ messages }}","bos_token":{"content":"<s>"},"added_tokens_decoder":{"98":{"content":"<x>","lstrip":true}}}`,
		`{"chat_template":[{"name":"default","template":"x"},{"name":"tool_use","template":"{% for m in messages %}{{ m }}{% endfor %}"}],"additional_special_tokens":["a"]}`,
	} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, conf []byte) {
		c := &Config{Templates: map[string]string{}}
		if err := c.parse(conf); err != nil {
			return
		}
		for _, src := range c.Templates {
			if tmpl, err := jinja.Parse(src); err == nil {
				_, _ = tmpl.Render(t.Context(), nil, c.Special, jinja.Options{Now: time.Unix(1_700_000_000, 0)})
			}
		}
	})
}
