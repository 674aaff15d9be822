// Package conformance asks an endpoint picker what a proxy asks it and says which
// of the picker protocol's rules its answers keep. It knows the picker only by
// its port and by the endpoints that it has, and shares no code with Grapevine's
// own: any picker can be its target.
//
//  1. Run dials the target and plays each Case on streams of its own.
//  2. An exchange sends what a proxy sends in full duplex, or in buffered mode,
//     and gathers the answer: headers, metadata, bodies, an immediate response.
//  3. A Result per case says pass, fail with what was seen, or skipped with what
//     it would take.
//
// It does not judge which endpoint is chosen, only whether it may be. A run uses
// one connection; cases run one after the other.
package conformance
