// Package plugin is the contract between plugin types and those who use them:
// a [Table] of [Type]s, the decoding of their parameters, and the [Plugin] that a
// type makes.
//
//  1. A configuration names a type; [Table.Find] looks it up.
//  2. [Type.New] decodes and checks the parameters and returns a Plugin: the
//     roles that it can play.
//  3. [Plugin.Join] gives those roles to a profile.
//
// The types that choose among endpoints are in picker/plugins and pd. Here are those
// that do not: detectors, which say when a pool is full ([DetectorTypes]), and
// settings ([SettingTypes]). A detector returns 1 or more when the candidates are
// saturated; the same limits, with a headroom, serve as a filter.
package plugin
