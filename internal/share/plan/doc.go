// Package plan decides for one engine's event stream whether this replica reads it, whether it is
// shared with the group, and under which incarnation of the engine. It is a state machine without a
// clock, goroutines, locks or logs. Inputs are events and times; outputs are actions.
//
// The modes of a stream:
//
//  1. Asking: the engine's metrics page is read, because its start time is the best evidence
//     for the incarnation of a batch.
//  2. Shared: the source is in the group's log, which assigns the role. A reader opens the
//     stream and continues from the group's position. If the page has no start time, the
//     incarnation comes from the log, or from the clock of the first reader.
//  3. Direct: the stream cannot be shared, so this replica reads it for itself.
//
// Invariants: content is dropped only for a newer incarnation of the engine, or to start over after
// it was found wrong. It then gets a higher incarnation, so that all members follow. A stream is
// open only in modes Shared and Direct. In every transient state there is a time at which Advance
// is due.
package plan
