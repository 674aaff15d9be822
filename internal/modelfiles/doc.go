// Package modelfiles finds or downloads the files that rendering and tokenizing a model requires:
// vocabulary, chat templates and configuration. It never reads weights.
//
//  1. [Source.Set] names the wanted models. Engines report the names, so they are untrusted: only
//     absolute folders and plain repository names (org/name) are accepted (name.go).
//  2. One goroutine per model looks for its files: a local folder, then the mounted Hugging Face
//     caches and the own cache (cache.go), then the other replicas (peers.go), then the Hub or a
//     mirror (hub.go). One replica of a group downloads, and the others take the files from it.
//     Package claims selects the downloading replica.
//  3. Downloads and transfers are bounded in size and time. Files are verified by the digests that
//     the Hub or the peer reports. A complete set of files is renamed into the own cache, which has
//     the layout of a Hugging Face cache.
//  4. A failed search is repeated with exponential backoff and jitter. [Source.Status] reports the
//     reason and the remedy.
//
// The request path never waits for this package.
package modelfiles
