// Package workload generates the traffic for measurements of simulated engines, sends it over HTTP
// and checks every answer.
//
//  1. A Kind describes sessions: chats with shared system prompts, questions
//     on documents, agents, single requests of mixed sizes. Session i of a
//     seed is always the same, given the same answers.
//  2. A Runner plays sessions, with a fixed number of users (closed loop) or at a
//     rate of arrivals (open loop), turn after turn with pauses.
//  3. Client sends one turn, reads the answer as it streams, and compares it
//     with the expected answer, byte for byte.
//  4. Ideal computes the hits of an infinite cache.
//  5. Recorder adds up the outcomes; the difference of two Totals covers the
//     time between them.
//
// Concurrency: Client, Ideal and Recorder are safe for concurrent use, a Session is not. A Runner
// owns its goroutines; its Wait returns after the last has ended.
package workload
