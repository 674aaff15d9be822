package remote

import "fmt"

// Chat is a fixed chat that engines render, to compare the result with the local rendering. It
// contains no client data.
type Chat struct {
	Name  string // as used in messages: "a chat"
	Tools bool   // it has tools
	body  string
}

// Chats are the chats to compare, the simplest first. Together they cover the text that a template
// adds, the sequence of turns, and the rendering of tools.
var Chats = []Chat{
	{Name: "a chat", body: `"messages":[{"role":"user","content":"Which leaves turn red?"}]`},
	{Name: "a chat of several turns", body: `"messages":[{"role":"system","content":"Answer in one word."},{"role":"user","content":"Is 文 a leaf?"},` +
		`{"role":"assistant","content":"No."},{"role":"user","content":"And a vine's?"}]`},
	{Name: "a chat with tools", Tools: true, body: `"messages":[{"role":"user","content":"Is it ripe?"}],"tools":[{"type":"function","function":{"name":"ripe",` +
		`"description":"Tells whether a vine's grapes are ripe.","parameters":{"type":"object","properties":{"vine":{"type":"string","enum":["old","young"]}},"required":["vine"]}}}]`},
}

// Body returns the chat as the body of a chat completions request.
func (c Chat) Body(model string) []byte { return c.with(model, "") }

func (c Chat) with(model, more string) []byte {
	return fmt.Appendf(nil, `{"model":%q,%s%s}`, model, c.body, more)
}
