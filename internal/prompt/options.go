package prompt

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/media"
)

// ContentFormat is how a message's content reaches the chat template.
type ContentFormat uint8

// Content formats; engines call them auto, string and openai.
const (
	ContentAuto   ContentFormat = iota // parts where the template loops over them
	ContentString                      // text parts joined by line ends
	ContentParts                       // a list of parts, even for a plain string
)

// ToolStyle is how tool definitions reach the chat template.
type ToolStyle uint8

// Tool styles.
const (
	// ToolsDumped is the format of vLLM and SGLang: type, function{name, description, parameters},
	// in this order, with null for absent keys. Only strict is kept in addition.
	ToolsDumped ToolStyle = iota
	// ToolsAsWritten keeps the body's keys and order.
	ToolsAsWritten
)

// Options describe how engines were started for a model. The zero value describes an engine without
// flags.
type Options struct {
	Name     string   // canonical model name
	Aliases  []string // further names under which engines serve it
	Adapters []string // LoRA adapters, whose names are also model names

	Vocabulary string // vocabulary file; "" = found in the model's folder
	Template   string // chat template file (--chat-template); "" = the template in the model's folder
	Pattern    string // split pattern of a vocabulary file that names none

	Content ContentFormat
	Tools   ToolStyle
	// HideTools leaves tools out when tool_choice is "none"
	// (--exclude-tools-when-tool-choice-none).
	HideTools bool
	// Kwargs are default chat_template_kwargs, a JSON object ("" = none).
	Kwargs string
	// EngineOnly is true if only an engine can render this model's prompts.
	EngineOnly bool

	// Media names images, sounds and videos as engines do; nil ends prompts at the first.
	Media *media.Names

	// Now is the clock for templates that print the date. Nil = time.Now.
	Now func() time.Time
}

// Kind is the shape of a body.
type Kind uint8

// Kinds of body.
const (
	KindChat        Kind = iota // OpenAI /v1/chat/completions
	KindCompletions             // OpenAI /v1/completions
	KindResponses               // OpenAI /v1/responses
	KindMessages                // Anthropic /v1/messages
	KindEmbeddings              // OpenAI /v1/embeddings
	KindGenerate                // vLLM /inference/v1/generate, SGLang /generate
	numKinds
)

var kindNames = [numKinds]string{"chat", "completions", "responses", "messages", "embeddings", "generate"}

// String returns the kind's name.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "other"
}

// Info describes a rendered prompt.
type Info struct {
	// Ends are the ends of each prompt within the output, relative to its
	// start, when the body holds several; nil when it holds one.
	Ends []int
	// Tokens is the number of tokens if the body contained token ids, else 0.
	Tokens int
	// Cuts is where each of these tokens ends, relative to the output's start.
	Cuts []int32
	// Media is true if the prompt contains images, sounds or videos. The output holds
	// block.AppendMedium's encoding of their names in their place.
	Media bool
	// Truncated is true if the output ends before content that is not text (an image, audio).
	Truncated bool
	// Engine is true if an engine rendered the prompt.
	Engine bool
	// Facts are those on which the rendering depends.
	Facts Fact
}
