// Package recording tells whoever asks, request by request, what ended: where it went,
// how long it took, and the shape of its prompt as hashes, never its text.
package recording
