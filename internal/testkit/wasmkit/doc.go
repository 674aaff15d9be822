// Package wasmkit builds small WebAssembly modules for tests: plugins that work, and plugins with one
// fault each. It needs no compiler.
package wasmkit
