// Package plugin defines plugin types: a [Table] of [Type]s, the decoding of their parameters, and
// the resulting [Plugin].
//
//  1. A configuration names a type; [Table.Find] looks it up.
//  2. [Type.New] decodes and validates the parameters and returns a Plugin with its roles.
//  3. [Plugin.Join] adds those roles to a profile.
//
// Types that choose endpoints are in picker/plugins and pd. This package has the others: detectors,
// which determine when a pool is saturated ([DetectorTypes]), and settings ([SettingTypes]). A
// detector returns 1 or more if the candidates are saturated. The same limits, with a headroom,
// serve as a filter.
package plugin
