// Package outcomes counts how requests ended ([Counter]): by endpoint, model and status class for
// operators, and separately as seen by users.
//
// It makes no decisions; the code that ends a request reports the outcome ([End]).
package outcomes
