package picker

import (
	"github.com/grapevine-epp/grapevine/picker/request"
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
	numConversationUses
)

var conversationUses = [numConversationUses]string{"found", "unknown", "gone"}

// String returns the use as it is in metrics.
func (u ConversationUse) String() string { return conversationUses[u] }

// conversationKey names a stored response among the sessions. "" has none.
func conversationKey(id string) sessions.Key { return sessions.KeyIn("\x00response", id) }

// pin leaves the engine alone that keeps what the request goes on with: no other
// can answer it, however busy or sick that one is.
func (c *Cycle) pin() {
	id := c.Request.Previous
	if id == "" || c.sessions == nil {
		return
	}
	c.conversation = ConversationUnknown
	at, known := c.sessions.Lookup(conversationKey(id))
	if !known {
		return
	}
	if at >= farIDs {
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

// keeps binds a response that the engine stored to it.
func (f *flight) keeps(o *Outcome) {
	if o.ResponseID != "" && f.request.Kind == request.KindResponses {
		id := f.ep.ID
		if far(f.ep) {
			id = farID(f.ep.Cluster)
		}
		f.s.opts.Sessions.Bind(sessions.Binding{Session: conversationKey(o.ResponseID), Endpoint: id, At: o.At})
	}
}
