// Package plugins holds the built-in filters, scorers, pickers, profile
// handlers and policies, one file each, and the table that names them all.
//
//  1. A configuration names types; Find looks them up in the table.
//  2. Type.New decodes the parameters, checks them and returns a Plugin: the
//     roles that it can play in a profile.
//  3. At a request's turn picker.Profile calls those roles with its Cycle.
//
// A type whose work is done elsewhere in this program, such as a data source of
// another endpoint picker, is in the table too: its parameters are read, and
// its note says what does the work here. The rows of package pd (prefill/decode
// handlers and their deciders) are added to the table by pd.Table.
//
// Score and filter methods allocate nothing and are safe for concurrent use.
// Plugins keep no clock: time is Cycle.Now, chance is the Cycle's generator.
package plugins
