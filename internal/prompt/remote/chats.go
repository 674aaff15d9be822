package remote

import "fmt"

// Chat is a fixed chat that engines are asked to render, to be compared with what the
// model's template makes of it here. It holds nothing of any client.
type Chat struct {
	Name  string // as it stands in messages: "a chat"
	Tools bool   // it has tools
	body  string
}

// Chats are what is compared, the plainest first. Between them they show what a template
// adds by itself, how turns follow each other, and how tools reach it.
var Chats = []Chat{
	{Name: "a chat", body: `"messages":[{"role":"user","content":"Which leaves turn red?"}]`},
	{Name: "a chat of several turns", body: `"messages":[{"role":"system","content":"Answer in one word."},{"role":"user","content":"Is 文 a leaf?"},` +
		`{"role":"assistant","content":"No."},{"role":"user","content":"And a vine's?"}]`},
	{Name: "a chat with tools", Tools: true, body: `"messages":[{"role":"user","content":"Is it ripe?"}],"tools":[{"type":"function","function":{"name":"ripe",` +
		`"description":"Tells whether a vine's grapes are ripe.","parameters":{"type":"object","properties":{"vine":{"type":"string","enum":["old","young"]}},"required":["vine"]}}}]`},
}

// Body is the chat as the body of a chat completions request.
func (c Chat) Body(model string) []byte { return c.with(model, "") }

func (c Chat) with(model, more string) []byte {
	return fmt.Appendf(nil, `{"model":%q,%s%s}`, model, c.body, more)
}
