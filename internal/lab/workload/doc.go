// Package workload makes the traffic that simulated engines are measured with,
// sends it over HTTP and checks every answer.
//
//  1. A Kind describes sessions: chats with shared system prompts, questions
//     on documents, agents, single requests of mixed sizes. Session i of a
//     seed is always the same, given the same answers.
//  2. Run plays sessions, by a fixed number of users (closed loop) or at a
//     rate of arrivals (open loop), turn after turn with pauses.
//  3. Client sends one turn, reads the answer as it streams, and compares it
//     with what the engine must say, byte for byte.
//  4. Ideal tells what an infinite cache would have hit.
//  5. Recorder adds it all up; the difference of two of its Tallies is what
//     happened in between.
//
// Concurrency: Client, Ideal and Recorder are safe for concurrent use, a
// Session is not. Run owns its goroutines and returns after the last has
// ended.
package workload
