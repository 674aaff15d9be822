// Package hub is a model hub for tests that answers as the Hugging Face Hub does: a listing per
// revision, files by redirect to a content host of another origin, digests in headers, and errors
// with X-Error-Code. Faults are broken-off files, 429 and gated repositories.
package hub
