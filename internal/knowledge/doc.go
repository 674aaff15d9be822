// Package knowledge names how far what is known of an engine's cache can be
// trusted: of one event stream, of an endpoint, of a source that replicas share.
//
// It is one type, so that what two parts of a replica say of the same endpoint
// can be compared, and is shown to users in the same words. It imports nothing.
package knowledge
