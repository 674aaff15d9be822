// Package engine is the core of a simulated inference engine: a paged prefix cache, a
// continuous-batching scheduler and a step-time model, as a single-threaded state machine without
// clock, sockets, goroutines or logging.
//
//  1. Submit appends a request to the waiting queue.
//  2. Step schedules one step: running requests first, then the waiting queue first come first
//     served, within a token budget and a number of sequences; prompts are split into chunks.
//  3. Blocks are allocated from the front of the free queue, which evicts their content, and
//     entered in the prefix cache as soon as they are scheduled to be full.
//  4. The Model computes the step's duration from the scheduled work.
//  5. The Result lists the requests that got a token, the requests that finished, and the
//     cache events. It takes effect at the end of the step: the caller adds
//     Result.Duration to its own time, real or virtual.
//
// The engine follows the rules of vLLM's V1 scheduler and block pool:
//
//   - Only full blocks are cached, and at least one prompt token is computed.
//   - A hit takes a block out of the free queue. The blocks of a finished request join the
//     free queue, last block first.
//   - Equal blocks computed at the same time are not merged.
//   - When memory runs out, the request that started to run last is preempted and recomputed.
//
// The caller names the blocks (Request.Blocks): the core neither hashes nor reads tokens. Names are
// chained: equal names mean equal prefixes.
//
// Not simulated: sliding windows, speculative decoding, the duration of block transfers.
//
// Concurrency: none. One goroutine owns an Engine. Slices in a Result are valid until the next
// call.
package engine
