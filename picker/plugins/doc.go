// Package plugins holds the built-in filters, scorers, pickers, profile handlers
// and policies, one file each, and the table that names all types.
//
//  1. A configuration names types; [Builtin] is the table that has them.
//  2. A type's New decodes its parameters, checks them and returns a
//     [plugin.Plugin]: the roles that it can play in a profile.
//  3. At a request's turn cycle.Profile calls those roles with its Cycle.
//
// Detectors of saturation are in package saturation, types that only carry
// settings in package settings; the rows of package pd (prefill/decode handlers
// and their deciders) are added to the table by pd.Table.
//
// Score and filter methods allocate nothing and are safe for concurrent use.
// Plugins keep no clock: time is Cycle.Now, chance is the Cycle's generator.
package plugins
