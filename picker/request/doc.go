// Package request parses inference requests: headers and body become a [Request] in one scan of the
// body.
//
//  1. [Parse] (or [ParsePrefix], if only the first bytes are available) reads the
//     known headers and scans the body once.
//  2. The scan fills the model, the kind, the sampling limits and the session,
//     and records the position of the prompt in the body. It builds no tree and
//     copies no prompt.
//  3. A request that no engine could answer is rejected with an [*Error], the
//     only error type sent to clients.
//
// The package renders no prompt, knows no endpoints and does no I/O. One goroutine fills a Request;
// afterwards it is read-only and safe for concurrent reads. Its byte slices alias the body.
package request
