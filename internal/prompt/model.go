package prompt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/folder"
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/media"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab"
)

// Model renders the prompts of one model. It is immutable and safe for
// concurrent use.
type Model struct {
	opts    Options
	vocab   *vocab.Vocab
	chat    *template // nil when the model has none
	left    error     // why chat is nil although the model has a template
	tools   *template // for chats with tools, nil if there is no separate one
	special []jinja.Var
	kwargs  *value.Dict
	bos     []byte // prefix that the tokenizer adds
	eos     []byte
	pads    []media.Pad
	notes   []string
	pool    sync.Pool // of *scratch
	check   sync.Pool // of *vocab.Checker
	print   fingerprint
	habits  func() habits
	hybrid  bool
}

// mistralFiles are vocabulary files found only in Mistral's own repositories.
var mistralFiles = [...]string{"tekken.json", "tokenizer.model.v*"}

// engineOnlyTypes are model types and architectures whose prompts engines build in code.
var engineOnlyTypes = map[string]bool{
	"gpt_oss": true, "deepseek_v32": true, "deepseek_v4": true, "deepseek_v41": true, "kimi_k3": true, "inkling": true,
	"KimiK3ForConditionalGeneration": true, "DeepseekV32ForCausalLM": true, "DeepseekV4ForCausalLM": true,
	"DeepseekV4ForConditionalGeneration": true, "DeepseekV41ForCausalLM": true,
	"InklingForCausalLM": true, "InklingForConditionalGeneration": true,
}

// Load reads a model's folder: vocabulary, chat templates, special tokens. The largest models take
// about a second and 50 MB of temporary memory.
func Load(dir string, o Options) (*Model, error) {
	conf, err := folder.Read(dir)
	if err != nil {
		return nil, err
	}
	if o.Vocabulary == "" {
		if o.Vocabulary, err = vocab.Find(dir); err != nil {
			return nil, err
		}
	}
	m := &Model{opts: o, special: conf.Special}
	m.pool.New = func() any { return new(scratch) }
	if m.opts.Now == nil {
		m.opts.Now = time.Now
	}
	if m.vocab, err = vocab.Load(o.Vocabulary, vocab.Options{Added: conf.Added, Pattern: o.Pattern, Prefix: conf.Prefix}); err != nil {
		return nil, err
	}
	m.notes = append(m.notes, m.vocab.Notes()...)
	if o.Kwargs != "" {
		v, err := new(value.Decoder).Decode([]byte(o.Kwargs))
		if err != nil || v.Dict() == nil {
			return nil, fmt.Errorf("prompt: default chat_template_kwargs are no JSON object: %w", err)
		}
		m.kwargs = v.Dict()
	}
	for _, name := range append(conf.Architectures, conf.ModelType) {
		if engineOnlyTypes[name] {
			m.opts.EngineOnly = true
			m.notes = append(m.notes, "engines build prompts of "+name+" in code: chats are matched approximately unless an engine renders them")
			break
		}
	}
	for _, pattern := range mistralFiles {
		if found, _ := fs.Glob(os.DirFS(dir), pattern); len(found) > 0 && conf.Templates[folder.TemplateDefault] != "" {
			m.notes = append(m.notes, "vLLM renders chats of Mistral's own repositories, with "+found[0]+", by mistral_common, not by their template: some may differ")
			break
		}
	}
	m.hybrid = conf.Hybrid
	m.surround(conf)
	m.findPads(conf)
	m.habits = sync.OnceValue(m.probeHabits)
	return m, m.loadTemplates(conf)
}

// loadTemplates parses the model's chat templates.
func (m *Model) loadTemplates(conf *folder.Config) error {
	if m.opts.Template != "" {
		src, err := folder.ReadFile(m.opts.Template)
		if err != nil {
			return err
		}
		conf.Templates = map[string]string{folder.TemplateDefault: string(src)}
	}
	src, ok := conf.Templates[folder.TemplateDefault]
	if !ok {
		if !m.opts.EngineOnly {
			m.notes = append(m.notes, "no chat template")
		}
		return nil
	}
	var err error
	if m.chat, err = newTemplate(src, m.opts.Content); err == nil {
		if src, ok := conf.Templates[folder.TemplateTools]; ok {
			m.tools, err = newTemplate(src, m.opts.Content)
		}
	}
	if errors.Is(err, jinja.ErrUnsupported) {
		// An engine may still render the model's chats.
		m.chat, m.tools, m.left = nil, nil, err
		m.notes = append(m.notes, "chats are matched approximately unless an engine renders them: "+err.Error())
		return nil
	}
	return err
}

// surround determines the tokens that the tokenizer adds around a text when special tokens are
// requested. Llama and Gemma classes follow add_bos_token rather than the file's post-processor.
func (m *Model) surround(conf *folder.Config) {
	m.bos, _ = m.vocab.AppendTokens(nil, m.vocab.BOS())
	m.eos, _ = m.vocab.AppendTokens(nil, m.vocab.EOS())
	if conf.AddBOS == nil || !strings.HasPrefix(conf.Class, "Llama") && !strings.HasPrefix(conf.Class, "Gemma") &&
		!strings.HasPrefix(conf.Class, "CodeLlama") {
		return
	}
	m.bos = nil
	if *conf.AddBOS {
		for _, s := range conf.Special {
			if s.Name == "bos_token" {
				m.bos = []byte(s.Value.Str())
			}
		}
	}
}

// Name returns the canonical model name.
func (m *Model) Name() string { return m.opts.Name }

// Vocab returns the model's vocabulary.
func (m *Model) Vocab() *vocab.Vocab { return m.vocab }

// EngineOnly reports whether only an engine can render this model's chats.
func (m *Model) EngineOnly() bool { return m.opts.EngineOnly }

// Hybrid reports whether engines keep several groups of cache blocks for the model.
func (m *Model) Hybrid() bool { return m.hybrid }

// HasTemplate reports whether the model's chats are rendered here, by a template.
func (m *Model) HasTemplate() bool { return m.chat != nil && !m.opts.EngineOnly }

// Notes lists, in human-readable form, the features of this model that are inexact or unavailable.
func (m *Model) Notes() []string { return m.notes }

// Renderer returns how the model's chats are rendered: jinja, engine or none.
func (m *Model) Renderer() string { return m.renderer() }

// AppendToken appends the bytes of one token id. It returns dst unchanged and false for an unknown
// id. It allocates only to grow dst.
func (m *Model) AppendToken(dst []byte, id uint32) ([]byte, bool) {
	return m.vocab.AppendToken(dst, id)
}

// AppendTokens appends the bytes of token ids. It returns dst unchanged and false if one is
// unknown. It allocates only to grow dst.
func (m *Model) AppendTokens(dst []byte, ids []uint32) ([]byte, bool) {
	return m.vocab.AppendTokens(dst, ids)
}

// Encode appends the engines' token ids of raw text, without BOS. It returns dst unchanged if the
// vocabulary cannot encode.
func (m *Model) Encode(dst []uint32, text []byte) []uint32 { return m.vocab.Encode(dst, text) }

// EncodeRendered appends the token ids of Render's output.
func (m *Model) EncodeRendered(dst []uint32, rendered []byte) []uint32 {
	return m.vocab.EncodePrepared(dst, rendered)
}

// Canonical reports whether an engine that tokenizes a block's text again gets the block's tokens;
// n is the number of leading tokens for which this is proven. It returns Unknown and 0 if the
// vocabulary cannot encode.
func (m *Model) Canonical(w vocab.Window) (v vocab.Verdict, n int) {
	c, _ := m.check.Get().(*vocab.Checker)
	if c == nil {
		if c = m.vocab.NewChecker(); c == nil {
			return vocab.Unknown, 0
		}
	}
	v, n = c.Check(w)
	m.check.Put(c)
	return v, n
}

// NewChecker returns a checker for blocks of generated tokens for one
// goroutine, nil when the vocabulary cannot encode.
func (m *Model) NewChecker() *vocab.Checker { return m.vocab.NewChecker() }

// BoundarySafe reports whether a token boundary of the rendered prompt is at byte pos. Only then
// can a cached block that ends at pos be reused.
func (m *Model) BoundarySafe(rendered []byte, pos int) bool {
	return m.vocab.BoundarySafe(rendered, pos)
}
