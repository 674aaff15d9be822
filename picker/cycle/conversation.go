package cycle

import (
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// ConversationUse says what became of a request that goes on with a response that
// one engine keeps.
type ConversationUse uint8

// Uses.
const (
	ConversationFound   ConversationUse = iota // it goes to that engine
	ConversationUnknown                        // nobody knows where it is
	ConversationGone                           // its engine is not among the candidates
	NumConversationUses
)

var conversationUses = [NumConversationUses]string{"found", "unknown", "gone"}

// String returns the use as it is in metrics.
func (u ConversationUse) String() string { return conversationUses[u] }

// pin leaves the engine alone that keeps what the request goes on with: no other
// can answer it, however busy or sick that one is.
func (c *Cycle) pin() {
	id := c.Request.Previous
	if id == "" || c.sessions == nil {
		return
	}
	c.conversation = ConversationUnknown
	at, known := c.sessions.Lookup(sessions.ResponseKey(id))
	if !known {
		return
	}
	if sessions.IsCluster(at) {
		c.far.keeper = at
		return
	}
	c.conversation = ConversationGone
	for _, ep := range c.endpoints {
		if ep.ID == at {
			c.endpoints = append(c.endpoints[:0], ep)
			c.pinned, c.conversation = true, ConversationFound
			return
		}
	}
}
