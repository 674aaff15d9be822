// Package prefix determines the part of a prompt that each endpoint holds, and how reliable that
// is.
//
//  1. Models implements the picker's Prompts: it renders a request's prompt as the
//     engine does, and cuts the raw prompt into chunks (models.go, ratio.go).
//  2. Matcher implements the picker's Matcher: it queries the precise and the
//     approximate index, and selects the result to use per endpoint
//     (matcher.go, align.go).
//  3. After a request, the prediction is compared with the engine's report of
//     cached tokens (audit.go). Repeated wrong predictions cause the endpoint's
//     events to be reread, repeated correct ones confirm them, and records of
//     missing blocks are removed (record.go).
//  4. The approximate index is sized per endpoint by the configuration or the
//     engine's own size (capacity.go).
//
// The package does not read event streams, communicate with other replicas, or choose endpoints.
// Options.Read provides the state of an endpoint's events. The results of audits are reported
// through Options.Invalidate and Options.Confirm.
//
// Requests are not changed after Models.Fill. Matcher starts no goroutine and takes the time from
// Options.Now, so it can run in virtual time. All methods are safe for concurrent use.
package prefix
