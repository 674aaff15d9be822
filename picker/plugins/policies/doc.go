// Package policies has the published policies and the pickers: rules that others have
// written down, and the ways to name endpoints once each has a score.
//
// They see a cycle and nothing else: not how plugins are named, configured or joined
// to profiles, which is the business of package plugins.
//
// Concurrency: all are safe for concurrent use by different cycles.
package policies
