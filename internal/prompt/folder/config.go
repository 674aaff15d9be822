package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab"
)

// Files of a model's folder.
const (
	fileTokenizerConfig = "tokenizer_config.json"
	fileSpecialTokens   = "special_tokens_map.json"
	fileTemplate        = "chat_template.jinja"
	fileTemplateJSON    = "chat_template.json"
	DirTemplates        = "additional_chat_templates"
	fileModelConfig     = "config.json"
)

const maxConfigBytes = 32 << 20

// Names of chat templates.
const (
	TemplateDefault = "default"
	TemplateTools   = "tool_use"
)

// Config holds the settings of tokenizer_config.json and related files.
type Config struct {
	Templates map[string]string
	Special   []jinja.Var // bos_token, eos_token, ... as templates see them
	Added     []vocab.Added
	Class     string
	AddBOS    *bool
	ModelType string
	// Prefix is a vocab.Options.Prefix: where the tokenizer's class puts a space, "" if that
	// is left to the vocabulary.
	Prefix string

	Architectures []string
	// Hybrid is true if the model's layers use different kinds of attention, so that engines keep
	// several groups of cache blocks.
	Hybrid bool
	// Pads are the placeholder tokens of images, videos and audio, by kind. Engines replace each by
	// as many tokens as the medium takes.
	Pads map[string]uint32
}

// specialNames are the special tokens that templates see as variables.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Read reads a model's folder. Missing files are ignored.
func Read(dir string) (*Config, error) {
	c := &Config{Templates: map[string]string{}}
	data, err := ReadFile(filepath.Join(dir, fileTokenizerConfig))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("{}"), nil
	}
	if err != nil {
		return nil, err
	}
	if err := c.parse(data); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, fileTokenizerConfig), err)
	}
	more, err := readJSON(filepath.Join(dir, fileSpecialTokens))
	if err != nil {
		return nil, err
	}
	c.specialTokens(more)
	if err := c.readTemplates(dir); err != nil {
		return nil, err
	}
	model, err := readJSON(filepath.Join(dir, fileModelConfig))
	if err != nil {
		return nil, err
	}
	c.ModelType = model.Text("model_type")
	if c.ModelType != "llama" { // for other types, engines read the file unchanged
		c.Prefix = ""
	}
	if model != nil {
		list, _ := model.Get("architectures")
		for _, v := range list.Items() {
			c.Architectures = append(c.Architectures, v.Text())
		}
		c.readPads(model)
		text, _ := model.Get("text_config")
		c.Hybrid = hybrid(model) || hybrid(text.Dict())
	}
	return c, nil
}

// hybridKeys are members of config.json that only models with several kinds of layers have: windows
// in addition to full attention, chunks, or states.
var hybridKeys = [...]string{"sliding_window_pattern", "attention_chunk_size", "full_attention_interval", "hybrid_override_pattern",
	"layers_block_type", "attn_layer_period", "attn_type_list", "mamba_d_state", "mamba_num_heads", "ssm_state_size", "linear_num_key_heads"}

// hybrid reports whether a configuration names several kinds of layers.
func hybrid(model *value.Dict) bool {
	if model == nil {
		return false
	}
	for _, key := range hybridKeys {
		if v, ok := model.Get(key); ok && v.Kind() != value.KindNone {
			return true
		}
	}
	kinds, _ := model.Get("layer_types")
	for _, v := range kinds.Items() {
		if v.Text() != kinds.Items()[0].Text() {
			return true
		}
	}
	return false
}

// readPads reads the placeholders of media from config.json.
func (c *Config) readPads(model *value.Dict) {
	c.Pads = map[string]uint32{}
	for _, kind := range []string{"image", "video", "audio"} {
		for _, key := range []string{kind + "_token_id", kind + "_token_index"} {
			if v, ok := model.Get(key); ok {
				if id, ok := v.Int(); ok && id >= 0 && id <= math.MaxUint32 {
					c.Pads[kind] = uint32(id)
				}
			}
		}
	}
}

// parse reads tokenizer_config.json.
func (c *Config) parse(data []byte) error {
	v, err := new(value.Decoder).Decode(data)
	if err != nil {
		return err
	}
	conf := v.Dict()
	if conf == nil {
		return fmt.Errorf("prompt: not a JSON object")
	}
	c.Class = conf.Text("tokenizer_class")
	if v, ok := conf.Get("add_bos_token"); ok && v.Kind() == value.KindBool {
		b := v.IsTrue()
		c.AddBOS = &b
	}
	c.Prefix = prefixOf(c.Class, conf)
	c.specialTokens(conf)
	if v, ok := conf.Get("additional_special_tokens"); ok && len(v.Items()) > 0 {
		c.Special = append(c.Special, jinja.Var{Name: "additional_special_tokens", Value: v})
	}
	c.addedTokens(conf)
	return c.templateValue(conf)
}

// prefixOf returns where a tokenizer of a class puts a space. From transformers 5 on, Llama's
// classes take only tokens and merges from tokenizer.json.
func prefixOf(class string, conf *value.Dict) string {
	class = strings.TrimSuffix(class, "Fast")
	if class != "LlamaTokenizer" && class != "CodeLlamaTokenizer" {
		return ""
	}
	if v, ok := conf.Get("add_prefix_space"); ok && v.Kind() != value.KindNone && !v.IsTrue() {
		return "never"
	}
	if v, _ := conf.Get("legacy"); v.Kind() == value.KindBool && v.IsTrue() && class == "LlamaTokenizer" {
		return "always"
	}
	return "first"
}

// specialTokens adds special tokens that are not in the list yet.
func (c *Config) specialTokens(d *value.Dict) {
next:
	for _, name := range specialNames {
		tok := tokenText(d, name)
		if tok == "" {
			continue
		}
		for _, have := range c.Special {
			if have.Name == name {
				continue next
			}
		}
		c.Special = append(c.Special, jinja.Var{Name: name, Value: value.String(tok)})
	}
}

// readTemplates reads the chat templates stored in separate files; they replace the configuration's
// entry.
func (c *Config) readTemplates(dir string) error {
	legacy, err := readJSON(filepath.Join(dir, fileTemplateJSON))
	if err != nil {
		return err
	}
	if err := c.templateValue(legacy); err != nil {
		return err
	}
	if s, err := ReadFile(filepath.Join(dir, fileTemplate)); err == nil {
		c.Templates[TemplateDefault] = string(s)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	extra, err := filepath.Glob(filepath.Join(dir, DirTemplates, "*.jinja"))
	if err != nil {
		return err
	}
	for _, path := range extra {
		s, err := ReadFile(path)
		if err != nil {
			return err
		}
		c.Templates[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(s)
	}
	return nil
}

// templateValue reads chat_template: a string, or a list of named templates.
func (c *Config) templateValue(conf *value.Dict) error {
	v, ok := conf.Get("chat_template")
	if !ok || v.Kind() == value.KindNone {
		return nil
	}
	if v.Kind() == value.KindString {
		c.Templates[TemplateDefault] = v.Str()
		return nil
	}
	if v.Kind() != value.KindList {
		return fmt.Errorf("prompt: chat_template is a %s", v.Kind())
	}
	for i, it := range v.Items() {
		name, tmpl := it.Dict().Text("name"), it.Dict().Text("template")
		if name == "" || tmpl == "" {
			return fmt.Errorf("prompt: chat_template[%d] has no name or no template", i)
		}
		c.Templates[name] = tmpl
	}
	return nil
}

func (c *Config) addedTokens(conf *value.Dict) {
	v, _ := conf.Get("added_tokens_decoder")
	if v.Dict() == nil {
		return
	}
	v.Dict().Range(func(key string, tok value.Value) bool {
		var id uint32
		if _, err := fmt.Sscanf(key, "%d", &id); err != nil || tok.Dict() == nil {
			return true
		}
		flag := func(name string) bool { f, _ := tok.Dict().Get(name); return f.IsTrue() }
		c.Added = append(c.Added, vocab.Added{
			ID: id, Content: tok.Dict().Text("content"), LStrip: flag("lstrip"), RStrip: flag("rstrip"),
			SingleWord: flag("single_word"), Normalized: flag("normalized"), Special: flag("special"),
		})
		return true
	})
}

// tokenText returns a special token, which is a string or an object with its
// content.
func tokenText(d *value.Dict, name string) string {
	v, ok := d.Get(name)
	if !ok {
		return ""
	}
	if v.Dict() != nil {
		return v.Dict().Text("content")
	}
	return v.Str()
}

// readJSON reads an object; an absent file is an empty one.
func readJSON(path string) (*value.Dict, error) {
	data, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, err
	}
	v, err := new(value.Decoder).Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if v.Dict() == nil {
		return nil, fmt.Errorf("prompt: %s is not a JSON object", path)
	}
	return v.Dict(), nil
}

// ReadFile reads a file of a model, of a bounded size.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(data) > maxConfigBytes {
		err = fmt.Errorf("prompt: %s has more than %d bytes", path, maxConfigBytes)
	}
	return data, err
}
