// Package docs compares the manual with the program. Its tests fail if a page of docs/plugins lacks
// a plugin type, a parameter, a default or an example that loads, and if an example of the other
// pages does not load.
//
//	go test ./internal/docs -rewrite
//
// rewrites the index of docs/plugins and the defaults in its pages.
//
// The package contains only tests and the parser of pages.
package docs
