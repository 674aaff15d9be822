// Package kinds defines the kinds of requests that a proxy in front of an engine must forward
// unchanged. Tests send them through a proxy and directly to the engine, and compare the responses.
//
//  1. Engine responds like an inference server: objects, streams, errors, frames of an
//     upgraded connection. Its responses describe the request it received.
//  2. Ask sends every kind to an address and returns the responses as text.
//  3. Compare sends every kind to both and fails the test for each difference.
//
// Headers that proxies add for themselves (date, server, via, forwarded-for) are ignored. The
// functions are safe for concurrent use.
package kinds
