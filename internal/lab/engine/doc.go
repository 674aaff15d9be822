// Package engine is the core of a simulated inference engine: a paged prefix
// cache, a continuous-batching scheduler and a step-time model, as one
// single-threaded state machine without clock, socket, goroutine or log.
//
// The main path:
//
//  1. Submit appends a request to the waiting queue.
//  2. Step schedules one step: running requests first, then the waiting queue
//     first come first served, within a token budget and a number of
//     sequences; prompts are cut into chunks.
//  3. Blocks are taken from the front of the free queue (which evicts what
//     they held) and entered in the prefix cache as soon as they are
//     scheduled to be full.
//  4. The step's duration follows from what was scheduled (Model).
//  5. The Result tells which requests got a token, which ended, and what
//     happened in the cache. All of it takes effect at the end of the step:
//     the caller adds Result.Duration to its own time, real or virtual.
//
// The rules are those of vLLM's V1 scheduler and block pool: only full blocks
// are cached; at least one prompt token is computed; a hit takes a block out
// of the free queue; the blocks of an ended request join the free queue last
// block first; equal blocks computed at the same time are not merged; when
// memory runs out, the request that started to run last is preempted and
// recomputed.
//
// Blocks are named by the caller (Request.Blocks): the core neither hashes
// nor looks at tokens. Names are chained: equal names mean equal prefixes.
//
// What the package does not do: sliding windows, speculative decoding,
// priorities, the time that a transfer of blocks takes.
//
// Concurrency: none. One goroutine owns an Engine. Slices in a Result are
// valid until the next call.
package engine
