package prompt

import (
	"bytes"
	"context"
	"time"
)

// habits are properties of a model's template. Engines detect them by rendering probes before they
// convert an Anthropic body to a chat.
type habits struct {
	noThinking   string // the effort that corresponds to thinking: disabled
	inlineSystem bool   // the template accepts system messages after the first message
}

// probeTime bounds all probes together. A slower template counts as rejecting them.
const probeTime = 2 * time.Second

// Probes: one question, and a chat with two system messages. Templates for chats with tools are
// probed too.
const (
	probeQuestion = `{"messages":[{"role":"user","content":"Hi"}]`
	probeSystems  = `{"messages":[{"role":"system","content":"t"},{"role":"user","content":"t"},{"role":"system","content":"t"},{"role":"user","content":"t"}]`
)

// efforts are the reasoning efforts that enable thinking.
var efforts = [...]string{"low", "medium", "high", "xhigh", "max"}

// probeHabits renders the probes and returns the habits of the template.
func (m *Model) probeHabits() habits {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	probe := func(body string) ([]byte, bool) {
		out, _, err := m.Render(ctx, nil, []byte(body), KindChat)
		return out, err == nil
	}
	_, plain := probe(probeSystems + `}`)
	_, tools := probe(probeSystems + `,"tools":[]}`)
	h := habits{noThinking: "none", inlineSystem: plain && tools}
	none, ok := probe(probeQuestion + `,"reasoning_effort":"none"}`)
	for _, effort := range efforts {
		with, fine := probe(probeQuestion + `,"reasoning_effort":"` + effort + `"}`)
		ok = ok && (!fine || !bytes.Equal(with, none)) // the template ignores unknown efforts
	}
	if !ok {
		h.noThinking = efforts[0]
	}
	return h
}
