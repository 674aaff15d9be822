// Package other declares callbacks.
package other

// Hooks are called by others.
type Hooks struct{ Changed func(int) }
