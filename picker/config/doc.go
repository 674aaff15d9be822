// Package config reads EndpointPickerConfig files, both for other endpoint pickers and with this
// one's extensions, and builds the picker's rules.
//
//  1. Parse reads YAML or JSON of either API group and any field generation into one tree with
//     positions (package strict).
//  2. Every plugin is looked up in the table of types and built from its parameters, and every
//     reference is resolved. Defaults are added: a profile of all plugins if there is none, the
//     handler for a single profile, the max-score picker, the utilization detector, weight 1.
//  3. Unknown fields and types, dangling references, duplicate names and invalid values are
//     Problems with line, column and hint. All are found in one pass, and any of them prevents
//     a Config.
//  4. Settings that are accepted but work differently here, or have no effect, are notes.
//  5. Effective prints the file with all defaults; it loads to the same rules.
//
// Extensions of the format, for settings that others read only from Kubernetes objects:
//
//	objectives:
//	- name: batch           # x-gateway-inference-objective
//	  priority: -1          # negative: may be refused while saturated
//	modelRewrites:
//	- model: chat           # as named by clients
//	  targets:
//	  - model: qwen3-8b     # as sent to the engine
//	    weight: 90          # default: 1
//
// Generations: "data" is the older "dataLayer", "parser" the older "requestHandler.parsers", and
// "saturationDetector" is at the top level, with a pluginRef or with its thresholds, or in
// "flowControl".
//
// The package opens no sockets, starts no goroutines and watches no files. A Config is immutable
// and safe for concurrent use.
package config
