// Package saved is an endpoint's state as a status tells it and as it is read back, so
// that a saved status can be decided about elsewhere. Decisions do not see it.
package saved
