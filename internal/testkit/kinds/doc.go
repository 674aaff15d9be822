// Package kinds holds the kinds of requests that a proxy in front of an engine must
// pass on as they are: what tests of proxies send to it and to the engine itself,
// and compare.
//
//  1. Engine answers as an inference server may: objects, streams, refusals, frames of
//     an upgraded connection. Its answer tells what it saw of the request.
//  2. Ask sends every kind to an address and returns the answers as texts.
//  3. Compare sends them to both and fails the test for each that differs.
//
// Only what clients and engines see counts: not what proxies add for themselves
// (date, server, via, forwarded-for). The functions may be used by several goroutines.
package kinds
