package continuation

// Reason is why a stream is not continued. The values are labels of a metric.
type Reason string

// Reasons.
const (
	API      Reason = "api"      // neither chat nor completions
	Field    Reason = "field"    // a field of the request prevents it, or is unknown
	Sampling Reason = "sampling" // neither temperature 0 nor a seed
	Content  Reason = "content"  // the answer has tool calls, reasoning or other parts than text
	Tokens   Reason = "tokens"   // the engine does not report token ids
	Large    Reason = "large"    // the answer and its prompt exceed the limit
	Finished Reason = "finished" // only the end of the stream is missing, or no token is left
	Endpoint Reason = "endpoint" // the picker named no allowed endpoint
	Suspect  Reason = "suspect"  // the prompt may be the cause of the death
	Refused  Reason = "refused"  // no other engine accepted the request
	Differs  Reason = "differs"  // the other engine reads the text as other tokens, or is another model
	Broken   Reason = "broken"   // the second answer broke off too
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{API, Field, Sampling, Content, Tokens, Large, Finished, Endpoint, Suspect, Refused, Differs, Broken}
}
