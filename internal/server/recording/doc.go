// Package recording streams one line per ended request to readers: its endpoint, its duration, and
// the shape of its prompt as hashes, never its text.
package recording
