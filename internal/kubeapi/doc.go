// Package kubeapi is a small Kubernetes client. It follows objects of one type and writes the few
// that a replica writes.
//
// The main path:
//
//  1. Find returns the server and the credentials: a pod's service account, or a kubeconfig
//     file.
//  2. Follow lists the objects of one type in pages and watches them from there. Objects are
//     reduced while reading: a pod takes a few hundred bytes, and at most one page is in memory.
//  3. A watch that ends is resumed from its last version. If the server does not know that
//     version (410, or a different server), all objects are listed again and replaced.
//  4. If the server is unreachable, known objects are kept. State has the error and its time,
//     and the server is retried at least every ten seconds.
//
// A type that is not installed and a missing permission are states, not failures: the follower
// waits for them. A missing permission is reported as an RBAC rule.
//
// Members are the addresses behind a Service, from its EndpointSlices. The package knows no other
// types, caches nothing that is not followed, and does not read OpenAPI. A Client and a Follower
// are safe for concurrent use. A Follower calls changed on its own goroutine, one call at a time.
package kubeapi
