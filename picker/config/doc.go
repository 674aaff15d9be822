// Package config reads EndpointPickerConfig files, those that people have for
// other endpoint pickers and those with this one's additions, and builds the
// rules by which the picker chooses.
//
//  1. Parse reads YAML or JSON of either API group and of any field generation
//     into one tree with places (package strict).
//  2. Every plugin is looked up in the table of types and built from its
//     parameters; every reference is followed; defaults are put in: a profile
//     of all plugins when there is none, the handler for a single profile, the
//     max-score picker, the utilization detector, weight 1.
//  3. Unknown fields and types, dangling references, doubled names, bad values
//     are Problems with line, column and hint; all are found in one pass, and
//     with any there is no Config.
//  4. What is accepted but works differently here, or does nothing, is a note.
//  5. Effective prints the file with all defaults filled in; it loads to the
//     same rules.
//
// Additions to the format, for what others read from Kubernetes objects only:
//
//	objectives:
//	- name: batch           # x-gateway-inference-objective
//	  priority: -1          # negative: may be refused while saturated
//	modelRewrites:
//	- model: chat           # as clients write it
//	  targets:
//	  - model: qwen3-8b     # what the engine sees
//	    weight: 90          # absent: 1
//
// Generations: "data" is the older "dataLayer", "parser" the older
// "requestHandler.parsers", and "saturationDetector" stands at the top, with a
// pluginRef or with its thresholds, or in "flowControl".
//
// The package opens no sockets, starts no goroutines and watches no files.
// A Config is immutable and safe for concurrent use.
package config
