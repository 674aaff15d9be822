package vocab

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrChat means that a chat request cannot be rendered.
var ErrChat = errors.New("vocab: bad chat")

// chatTemplate is the Jinja chat template that corresponds to AppendChat.
const chatTemplate = `{%- for message in messages %}` +
	`{{- '<|im_start|>' + message['role'] + '\n' }}` +
	`{%- if message['content'] %}{{- message['content'] }}{%- endif %}` +
	`{{- '<|im_end|>' + '\n' }}` +
	`{%- endfor %}` +
	`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

// Chat is the part of a chat request that the template sees.
type Chat struct {
	Messages []Message `json:"messages"`
	// AddGenerationPrompt opens the assistant's turn; nil means true.
	AddGenerationPrompt *bool `json:"add_generation_prompt"`
	// ContinueFinalMessage leaves the last message open, to be continued.
	ContinueFinalMessage bool `json:"continue_final_message"`
}

// Message is one message of a chat.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

// Content is the text of a message: a JSON string, null, or a list of parts of
// which the text parts are joined by newlines.
type Content string

// UnmarshalJSON implements json.Unmarshaler.
func (c *Content) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] != '[' {
		var s string // stays empty for null
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("%w: content: %w", ErrChat, err)
		}
		*c = Content(s)
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return fmt.Errorf("%w: content: %w", ErrChat, err)
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("%w: content part of type %q", ErrChat, p.Type)
		}
		texts = append(texts, p.Text)
	}
	*c = Content(strings.Join(texts, "\n"))
	return nil
}

// Render appends the prompt of a chat request, given as its JSON body, to dst.
// Errors wrap ErrChat.
func (v *Vocabulary) Render(dst, body []byte) ([]byte, error) {
	var c Chat
	if err := json.Unmarshal(body, &c); err != nil {
		if errors.Is(err, ErrChat) {
			return dst, err
		}
		return dst, fmt.Errorf("%w: %w", ErrChat, err)
	}
	return AppendChat(dst, &c)
}

// AppendChat appends the prompt of a chat to dst. Errors wrap ErrChat.
func AppendChat(dst []byte, c *Chat) ([]byte, error) {
	if len(c.Messages) == 0 {
		return dst, fmt.Errorf("%w: no messages", ErrChat)
	}
	open := c.AddGenerationPrompt == nil && !c.ContinueFinalMessage || c.AddGenerationPrompt != nil && *c.AddGenerationPrompt
	if open && c.ContinueFinalMessage {
		return dst, fmt.Errorf("%w: add_generation_prompt and continue_final_message cannot be used together", ErrChat)
	}
	for i, m := range c.Messages {
		dst = append(dst, ImStart+m.Role+"\n"...)
		dst = append(dst, m.Content...)
		if i == len(c.Messages)-1 && c.ContinueFinalMessage {
			return dst, nil
		}
		dst = append(dst, ImEnd+"\n"...)
	}
	if open {
		dst = append(dst, ImStart+"assistant\n"...)
	}
	return dst, nil
}
