// Package epp is the public entrance to Grapevine as a library: it runs the whole endpoint picker
// with your own plugin types, without a fork.
//
//	func main() {
//		epp.Main(epp.WithPlugins(latency.Type()))
//	}
//
// [Main] is the program grapevine: the same commands, flags, files and metrics. Plugin types are
// values of [plugin.Type]. Configurations name them like the built-in ones, and the commands check
// and explain support them too. A type with the name of a built-in type replaces it.
//
// Package [plugin] has the contract of a type, package [cycle] the contracts of filters, scorers
// and pickers, and package [request] the contract of the request that these see.
// docs/examples/custom-picker is a separate module with one scorer, one filter and a configuration.
//
// # Stability
//
// The exported names of this package and of the packages plugin, cycle, request and endpoint follow
// semantic versioning from 1.0 on. Before 1.0 a minor version may change them; the changelog lists
// each change under "Library". All other packages may change at any time. The file api.txt lists these
// names with their types; a test compares it with the code.
package epp
