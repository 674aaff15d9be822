// Package plugins contains the built-in filters, scorers, pickers, profile handlers and policies,
// one per file, and the table of all types.
//
//  1. A configuration names types; [Builtin] returns the table of them.
//  2. A type's New decodes and validates its parameters and returns a
//     [plugin.Plugin]: the roles that it can have in a profile.
//  3. For each request, cycle.Profile calls these roles with its Cycle.
//
// Saturation detectors are in package saturation, settings-only types in package settings. pd.Table
// adds the types of package pd (prefill/decode handlers and deciders).
//
// Score and filter methods do not allocate and are safe for concurrent use. Plugins read no clock
// and no global randomness: they use Cycle.Now and the Cycle's generator.
package plugins
