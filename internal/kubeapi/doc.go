// Package kubeapi talks to a Kubernetes API server: it keeps objects of one
// kind in view and writes the few that a replica writes.
//
// The main path:
//
//  1. Find says where the server is and who we are there: a pod's service
//     account, or a kubeconfig file.
//  2. Follow lists the objects of one kind, in pages, and watches them from
//     there. An object is reduced while it is read: a caller keeps a few
//     hundred bytes of a pod, and no more is ever held than one page.
//  3. A watch that ends is resumed where it ended. Where the server no longer
//     knows that place (410, or another server's numbers), all is listed again
//     and replaces what was known.
//  4. Nothing known is given up because the server is away: the objects stay,
//     State says since when and why, and the server is tried again after at
//     most ten seconds.
//
// A kind that is not installed and a right that is missing are states, not
// failures: they are waited for, and a missing right names the rule.
//
// Members are the addresses behind a Service, followed in its EndpointSlices. Beside
// these it knows no kinds; it keeps no cache of what nobody follows and reads no
// OpenAPI. A Client and a Follower are safe for concurrent use; a Follower's
// Changed runs on its own goroutine, one call at a time.
package kubeapi
