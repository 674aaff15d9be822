package request

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Chooser decides where requests go. Choose may block only for admission; it
// returns a *Error for every refusal meant for the client. Implementations are
// safe for concurrent use.
type Chooser interface {
	Choose(ctx context.Context, r *Request) (*Decision, error)
}

// Decision is the answer to one  Its Done method must be called
// exactly once, however the request ends: it releases the in-flight book.
type Decision struct {
	Endpoints     []string    // ip:port, best first; the rest are fallbacks. Never empty.
	SetHeaders    []HeaderSet // further request headers (x-prefiller-host-port, …)
	AnswerHeaders []HeaderSet // to be set on the answer to the client; none once Observe was told that another endpoint serves
	ModelTarget   string      // model name to be spliced into the body; "" leaves it alone
	BodyExtra     string      // members, ",key:value…", to be added to the body behind the model; "" for none
	Priority      int64       // with Prioritised: the body's member priority, in place of one that it has
	Prioritised   bool
	Tries         Tries // what the proxy may do when the first endpoint fails
	WantBody      bool  // the picker would like to see this response's body (audit, learning)

	// Observe is told what the response path shows, in order; it may be nil.
	Observe func(Event)
	// Release ends the request's accounting. Set by the Chooser; call Done instead.
	Release func(Outcome)
	done    bool
}

// Tries says what a proxy may do with a request whose endpoint fails before its answer.
type Tries uint8

// Tries.
const (
	TriesSafe Tries = iota // what the proxy does by itself: go on while no engine has begun on it
	TriesOnce              // go on once, also from an engine that has begun on it
	TriesNone              // nothing
)

// EventKind names a moment on the response path.
type EventKind uint8

// Moments on the response path.
const (
	EventHeaders    EventKind = iota // response headers arrived; Status and Served are set
	EventFirstToken                  // first body byte with generated text
	EventTokens                      // further streamed output; Tokens is the number of SSE data events in this message
	EventStored                      // the id of a response that the engine stores was seen
)

// Event is one moment on the response path.
type Event struct {
	Kind   EventKind
	At     time.Time
	Status int
	Served string // ip:port that answered, when the proxy says so
	Tokens int

	ResponseID string // with EventStored

	// Local says that the proxy answered in the engine's place, as when it could
	// not connect; Attempts is how often it tried, 0 when it does not say.
	Local    bool
	Attempts int

	// RetryAfter is for how long an engine without room wants to be left alone, as far as
	// it says; else 0.
	RetryAfter time.Duration

	// KVTransfer is what a proxy beside a decode engine tells of how the answer was made.
	KVTransfer kvtransfer.Report
}

// Outcome is how a request ended.
type Outcome struct {
	At       time.Time
	Status   int    // response status, 0 when none was seen
	Served   string // endpoint-served metadata, "" when the proxy does not say
	Complete bool   // the response ended normally
	Unseen   bool   // it began, and the proxy kept its end from us: Complete is a guess
	Attempts int    // tries of the proxy, 0 when it does not say
	Broken   bool   // in the place of an answer came an error of the engine, or nothing
	Invalid  bool   // the answer has no content, or was aborted by the engine
	Foreign  bool   // the answer names another model than the request
	Closed   bool   // the stream had its closing event
	Unclosed bool   // the stream ended without the closing event that its protocol has
	Evicted  bool   // we ended it, for others
	Bytes    int    // of the answer's body, as far as it was seen
	Usage    Usage  // zero when the body was not seen

	ResponseID string // of a response that the engine stored, "" when none was seen
}

// Usage is what the engine reported about a  Seen is false when no
// usage was found.
type Usage struct {
	Seen         bool
	CachedSeen   bool // the engine reported cached tokens (0 is then a fact)
	PromptTokens int
	OutputTokens int
	CachedTokens int
	Transferred  bool // another engine computed the prompt: what was cached says nothing of this one
}

// Done releases the request's accounting; calls after the first do nothing.
// It is not safe for concurrent use: one stream owns one decision.
func (d *Decision) Done(o Outcome) {
	if d == nil || d.done {
		return
	}
	d.done = true
	if d.Release != nil {
		d.Release(o)
	}
}
