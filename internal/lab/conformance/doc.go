// Package conformance tests an endpoint picker of any make against the endpoint picker protocol. It
// acts as the proxy and reports which rules the answers keep. It uses only the picker's port and
// its list of endpoints, and shares no code with Grapevine's implementation.
//
//  1. [Run] connects to the target and runs each [Case] on its own streams.
//  2. An exchange sends a request in full-duplex or buffered mode and collects the answer: headers,
//     metadata, bodies, an immediate response.
//  3. A [Result] per case is pass, fail with the observed answer, or skipped with the missing
//     condition.
//
// A case checks whether the chosen endpoint is allowed, not whether it is a good choice. A run uses
// one connection and runs its cases one after the other.
package conformance
