// Package history keeps the last hour of a replica's traffic in memory, for its status page.
//
//  1. [Recorder.Run] takes a sample at whole multiples of [Interval]: what every model's counters
//     gained since the last one, and how many requests wait for it.
//  2. Samples lie in rings, one for each of the models with traffic and one for their sum. Models
//     beyond a limit are added up.
//  3. [Recorder.Show] returns one ring as columns. An interval without a sample is null.
//
// The memory is bounded: at most 33 rings of an hour, 0.6 MB. A Recorder is safe for
// concurrent use. It reads counters and never runs on the path of a request.
package history
