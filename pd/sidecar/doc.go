// Package sidecar is the proxy beside a decode engine: it has another engine
// compute a prompt, hands the KV cache over, and streams the answer.
//
// The path of a request that the picker gave a prefill endpoint:
//
//  1. Server.ServeHTTP reads the body within its limits, removes or refuses the
//     hand-over members that only proxies may set, and checks the targets that the
//     picker named against Targets.
//  2. A Connector makes the legs: serially where the prefill answer holds what
//     decode needs (nixl.go, storage.go), at once where both engines meet by a
//     name that the proxy chooses (sglang.go).
//  3. relay (relay.go) holds the head of the decode answer until it has content,
//     since engines report failed transfers inside an answer of status 200; until
//     then the request can be tried once more. Afterwards it passes bytes on as
//     they come and looks only into events that hold usage or hand-over members.
//
// Invariants: a request reaches the decode engine at most twice; no byte of a
// second try follows one of a first; a hand-over older than two thirds of its
// lease is dropped, since engines read freed blocks without an error; a client
// that leaves after the prefill leg does not leave blocks pinned.
//
// What it does not do: choose endpoints, queue, or cache. All exported types are
// safe for concurrent use.
package sidecar
