// Package docs holds the manual to the program: its tests fail when a page of
// docs/plugins lacks a plugin type, a parameter, a default or an example that
// loads, and when an example of the other pages does not load.
//
//	go test ./internal/docs -rewrite
//
// writes the index of docs/plugins and the defaults in its pages anew.
//
// The package has no code of its own beside the reading of pages.
package docs
