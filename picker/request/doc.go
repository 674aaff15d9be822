// Package request reads inference requests: headers and body become a [Request]
// in one scan of the body.
//
//  1. [Parse] (or [ParsePrefix], when only the first bytes are there) reads the
//     headers that the picker knows and scans the body once.
//  2. The scan fills the model, the kind, the sampling limits and the session,
//     and notes where the prompt stands in the body. It builds no tree and
//     copies no prompt.
//  3. A request that no engine could answer is refused with an [*Error], the
//     only error that reaches a client.
//
// It renders no prompt, knows no endpoints and does no I/O. A Request belongs to
// one goroutine while it is filled; afterwards it is read-only, and any number
// of goroutines may read it. Its byte slices alias the body.
package request
