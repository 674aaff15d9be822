// Package saved converts an endpoint's state to and from its status form, so that decisions can be
// replayed from a saved status. Decisions do not use it.
package saved
