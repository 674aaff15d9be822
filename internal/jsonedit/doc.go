// Package jsonedit changes single members of a JSON object and leaves every other
// byte as it was: numbers keep their digits, members their order, texts their
// escapes.
//
//  1. Parse finds where the members of an object are. It checks that values are
//     balanced and not too deep; it decodes nothing but keys.
//  2. Get, Find and Elements return the text of values.
//  3. Object.With returns the text with members set or removed.
//
// Where a member repeats, Get returns the last, as the decoders of engines do. The
// time and memory of every function are linear in its input. Nothing is retained;
// values may be used by several goroutines.
package jsonedit
