// Package hub is a model hub for tests that answers like the Hugging Face Hub. It has a listing per
// revision, redirects of files to a content host of another origin, digests in headers, and errors
// with X-Error-Code. Faults are truncated files, 429 and gated repositories.
package hub
