package cycle

import (
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// ConversationUse is the routing result of a request that continues a response stored by one
// engine.
type ConversationUse uint8

// Results.
const (
	ConversationFound   ConversationUse = iota // sent to that engine
	ConversationUnknown                        // the engine is unknown
	ConversationGone                           // the engine is not a candidate
	NumConversationUses
)

var conversationUses = [NumConversationUses]string{"found", "unknown", "gone"}

// String returns the name used in metrics.
func (u ConversationUse) String() string { return conversationUses[u] }

// pin restricts the candidates to the engine that stores the previous response. No other engine can
// answer, however busy or unhealthy that one is.
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
		c.remoteState.storedIn = at
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
