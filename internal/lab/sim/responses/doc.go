// Package responses implements the Responses API of a simulated engine: stored responses that can
// be continued (previous_response_id), read, cancelled and computed in the background. The engine
// computes each one as a chat.
//
// It stores a limited number of responses and evicts the oldest. A restarted engine has a new,
// empty [Handler].
//
// Concurrency: a [Handler] is safe for concurrent use; its owner ends the context and calls
// [Handler.Wait].
package responses
