// Package sidecar is the proxy next to a decode engine: it lets another engine compute a prompt,
// passes on the KV transfer parameters, and streams the response.
//
// The path of a request for which the picker named a prefill endpoint:
//
//  1. Server.ServeHTTP reads the body within its limits, removes or rejects
//     KV transfer fields that only proxies may set, and checks the picker's targets
//     against Targets.
//  2. A Connector sends the legs: serially if the prefill response contains the
//     input of decode (nixl.go, storage.go), or simultaneously if both engines
//     meet by a name that the proxy chooses (sglang.go).
//  3. relay (relay.go) holds the header of the decode response until there is
//     content, because engines report failed transfers in a 200 response. Until
//     then the request can be retried. Afterwards it forwards data immediately and
//     parses only events with usage or KV transfer fields.
//
// With Options.Continue, a stream whose engine dies continues at another decode engine (continue.go).
//
// Invariants: a request reaches the decode engine at most twice. Output of a retry never follows
// output of the first try, except for a continuation, whose prompt equals the first try's tokens. A
// KV transfer older than two thirds of its lease is discarded, because engines read freed blocks
// without an error. A client that disconnects after the prefill leg does not leave blocks pinned.
//
// The package does not choose endpoints, queue, or cache. All exported types are safe for
// concurrent use.
package sidecar
