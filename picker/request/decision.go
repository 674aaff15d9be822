package request

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Chooser decides where requests are sent. Choose blocks only for admission. It returns a *Error
// for every rejection meant for the client. Implementations are safe for concurrent use.
type Chooser interface {
	Choose(ctx context.Context, r *Request) (*Decision, error)
}

// Decision is the result for one request. Call Done exactly once, however the request ends: it
// releases the in-flight load.
type Decision struct {
	Endpoints     []string    // ip:port, best first; the rest are fallbacks. Never empty.
	SetHeaders    []HeaderSet // additional request headers (x-prefiller-host-port, …)
	AnswerHeaders []HeaderSet // to be set on the client's response; without those about the endpoint after Observe reported another one
	ModelTarget   string      // model name to write into the body; "" leaves it unchanged
	BodyExtra     string      // members, ",key:value…", to insert after the model; "" for none
	Priority      int64       // with Prioritised: value of the body's member priority, replacing an existing one
	Prioritised   bool
	Tries         Tries // allowed retries if the first endpoint fails
	// RetryRefusal allows a retry if the first endpoint refuses the request for lack of capacity (429):
	// it is in another cluster, and the next one is here.
	RetryRefusal bool
	Number       uint64 // of this decision at this replica, from 1; 0: it is not recorded
	WantBody     bool   // request this response's body (audit, learning)

	// Observe receives the events of the response path in order; it may be nil.
	Observe func(Event)
	// Release ends the request's accounting. The Chooser sets it; call Done instead.
	Release func(Outcome)
	done    bool
}

// Tries is the set of retries that a proxy may do if an endpoint fails before its response.
type Tries uint8

// Tries.
const (
	TriesSafe Tries = iota // the proxy's default: retry while no engine has begun
	TriesOnce              // retry once, even after an engine has begun
	TriesNone              // no retries
)

// EventKind is a kind of event on the response path.
type EventKind uint8

// Events on the response path.
const (
	EventHeaders    EventKind = iota // response headers arrived; Status and Served are set
	EventFirstToken                  // first body byte with generated text
	EventTokens                      // further streamed output; Tokens is the number of SSE data events in this message
	EventStored                      // the id of a response stored by the engine was found
)

// Event is one event on the response path.
type Event struct {
	Kind   EventKind
	At     time.Time
	Status int
	Served string // ip:port that served, if the proxy reports it
	Tokens int

	ResponseID string // with EventStored

	// Local means that the proxy responded instead of the engine, for example after a failed
	// connection. Attempts is the number of tries, 0 if not reported.
	Local    bool
	Attempts int

	// RetryAfter is the back-off time requested by an engine without capacity, or 0.
	RetryAfter time.Duration

	// KVTransfer is the decode sidecar's report on how the answer was produced.
	KVTransfer kvtransfer.Report
}

// Outcome is the result of a request.
type Outcome struct {
	At       time.Time
	Status   int    // response status, 0 when none was seen
	Served   string // endpoint-served metadata, "" if not reported
	Complete bool   // the response ended normally
	Unseen   bool   // the response began but the proxy did not report its end: Complete is a guess
	Attempts int    // tries of the proxy, 0 if not reported
	Broken   bool   // the engine sent an error or nothing instead of an answer
	Invalid  bool   // the answer has no content, or was aborted by the engine
	Foreign  bool   // the answer names a model other than the requested one
	Finished bool   // the stream had a finish reason
	Endless  bool   // the stream ended without a finish reason
	Closed   bool   // the stream had its closing event
	Unclosed bool   // the stream ended without its protocol's closing event
	Evicted  bool   // evicted in favour of other requests
	Bytes    int    // observed bytes of the body
	Usage    Usage  // zero if the body was not observed

	ResponseID string // id of a response stored by the engine, "" if none
}

// Usage is the engine's usage report for a request. Seen is false if none was found.
type Usage struct {
	Seen         bool
	CachedSeen   bool // the engine reported cached tokens (0 is then a fact)
	PromptTokens int
	OutputTokens int
	CachedTokens int
	Transferred  bool // another engine computed the prompt, so cached tokens do not describe this one
}

// Done releases the request's accounting. Only the first call has an effect. It is not safe for
// concurrent use: one stream owns one decision.
func (d *Decision) Done(o Outcome) {
	if d == nil || d.done {
		return
	}
	d.done = true
	if d.Release != nil {
		d.Release(o)
	}
}
