// Package conformance tests an endpoint picker of any make against the endpoint picker protocol. It
// acts as the proxy and reports which rules the answers keep. It uses only the picker's ports and
// its list of endpoints, and shares no code with Grapevine's implementation.
//
//  1. [Run] connects to the target and runs each [Case] on its own streams. A case quotes the
//     sentence that it tests and names its source.
//  2. An exchange sends a request in one of Envoy's body modes and collects the answer: headers,
//     metadata, bodies, an immediate response. Only what a proxy in that mode would use counts.
//  3. The outcome is pass, fail, not-applicable or inconclusive, with the observed behavior.
//  4. [Report] is the stable form of a run: JSON, YAML, Markdown or a table. [Matrix] shows several
//     reports side by side.
//
// The test has a small picker that keeps every rule, and one planted fault for each MUST case.
package conformance
