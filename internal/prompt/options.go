package prompt

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/media"
)

// ContentFormat is the form in which a chat template receives a message's content.
type ContentFormat uint8

// Content formats; engines call them auto, string and openai.
const (
	ContentAuto   ContentFormat = iota // parts if the template loops over them
	ContentString                      // text parts joined by newlines
	ContentParts                       // a list of parts, even for a plain string
)

// ToolStyle is the form in which a chat template receives tool definitions.
type ToolStyle uint8

// Tool styles.
const (
	// ToolsDumped is the format of vLLM and SGLang: type, function{name, description, parameters},
	// in this order, with null for absent keys. Only strict is kept in addition.
	ToolsDumped ToolStyle = iota
	// ToolsAsWritten keeps the body's keys and order.
	ToolsAsWritten
)

// Options describes how engines were started for a model. The zero value means no flags.
type Options struct {
	Name     string   // canonical model name
	Aliases  []string // further names under which engines serve it
	Adapters []string // LoRA adapters, whose names are also model names

	Vocabulary string // vocabulary file; "" = found in the model's folder
	Template   string // chat template file (--chat-template); "" = the template in the model's folder
	Pattern    string // split pattern of a vocabulary file without one

	Content ContentFormat
	Tools   ToolStyle
	// HideTools omits tools if tool_choice is "none" (--exclude-tools-when-tool-choice-none).
	HideTools bool
	// Kwargs are default chat_template_kwargs, a JSON object ("" = none).
	Kwargs string
	// EngineOnly is true if only an engine can render this model's prompts.
	EngineOnly bool

	// Media computes the engines' names of images, audio and video; nil truncates prompts at the
	// first medium.
	Media *media.Names

	// Now is the clock for templates that print the date. Nil = time.Now.
	Now func() time.Time
}

// Kind is the API format of a body.
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
	// Ends are the ends of each prompt, relative to the start of the output, if the body has
	// several; nil if it has one.
	Ends []int
	// Tokens is the number of tokens if the body contained token ids; otherwise 0.
	Tokens int
	// Cuts are the ends of these tokens, relative to the start of the output.
	Cuts []int32
	// Media is true if the prompt contains images, audio or video, which the output represents by
	// block.AppendMedium of their names.
	Media bool
	// Truncated is true if the output ends before content that is not text (an image, audio).
	Truncated bool
	// Engine is true if an engine rendered the prompt.
	Engine bool
	// Facts are the facts on which the rendering depends.
	Facts Fact
}
