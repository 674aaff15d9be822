// Package compat serves the metrics of other endpoint pickers, by their names and
// labels, so that their dashboards, alerts and autoscalers go on working when the
// image is exchanged. The names are those of llm-d's router, each with its older
// twin of the Gateway API inference extension.
//
//  1. New registers every series; gauges of the pool are read when somebody asks.
//  2. Watch follows a decision: what was asked for, and how it ends.
//  3. Refused counts a request that was not placed.
//
// Labels that take values from requests have at most maxValues of them; further
// ones count as "other". What this program has no figure for is not served. Safe
// for concurrent use.
package compat
