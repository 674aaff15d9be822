package prompt_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// A model's folder has a vocabulary and a chat template. Render turns a request's
// body into the text that the engine tokenizes.
func Example() {
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{
		"tokenizer.json":      `{"model":{"type":"BPE","vocab":{"H":0,"i":1,"<":2,">":3,":":4},"merges":[]}}`,
		"chat_template.jinja": `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}
	models := prompt.NewModels(prompt.ModelsOptions{})
	defer models.Close()
	models.Set([]prompt.Config{{Path: dir, Options: prompt.Options{Name: "small", Aliases: []string{"gpt-4"}}}})
	if err := models.Wait(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	body := []byte(`{"model":"gpt-4","messages":[{"role":"user","content":"Hi"}]}`)
	text, _, err := models.Render(context.Background(), "gpt-4", nil, body, prompt.KindChat)
	fmt.Println(string(text), err)
	_, _, err = models.Render(context.Background(), "gpt-4", nil, []byte(`{"messages":7}`), prompt.KindChat)
	fmt.Println(prompt.ReasonOf(err))
	// Output:
	// <user>Hi<assistant> <nil>
	// body
}
