// Package responses gives a simulated engine the Responses API: answers that the engine
// keeps, that others go on with (previous_response_id), and that clients read, cancel
// and have made in the background. Each is computed as a chat by the engine itself.
//
// It keeps so many responses and forgets the oldest. An engine that starts again has
// a new [Handler], and so has lost them all.
//
// Concurrency: a [Handler] is safe for concurrent use; its owner ends the context and
// calls [Handler.Wait].
package responses
