// Package expression has a filter and a scorer whose rule is a CEL expression in the configuration.
//
//  1. [compile] parses and type-checks an expression once, when the configuration is loaded. It
//     refuses expressions whose estimated cost is above a limit.
//  2. A [vars] gives an evaluation its variables: the request, one endpoint, its load and the cached
//     part of the prompt. Values are read only if the expression names them.
//  3. A filter keeps the endpoints for which the expression is true, a scorer uses its number.
//
// An evaluation that fails (a division by zero, for example) is counted in
// [cycle.Cycle.CountFailure]: a filter keeps the endpoint, a scorer gives it 0. Macros are off, so an
// expression has no loops.
package expression
