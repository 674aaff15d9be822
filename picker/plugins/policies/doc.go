// Package policies contains published routing policies and the pickers that select endpoints by
// score.
//
// They see only a cycle. Package plugins handles names, configuration and profiles.
//
// All are safe for concurrent use by different cycles.
package policies
