// Package sim serves simulated inference engines that a picker cannot tell
// from vLLM: OpenAI-style HTTP, a metrics page, KV-cache events with replay, a
// paged prefix cache and continuous batching with a step-time model. Nothing
// is inferred; the text of an answer is a function of the request (package
// answer), and what takes time is computed (package engine).
//
// The main path of a request:
//
//  1. A handler reads the body, renders the prompt, tokenizes it, makes up
//     the answer and names the blocks of both.
//  2. It posts a job to one core (one data-parallel rank).
//  3. The core's goroutine steps the engine, waits until the step is over in
//     real time divided by Speed, publishes the step's cache events and tells
//     the jobs how many tokens they have.
//  4. The handler writes these tokens, as server-sent events or at once.
//
// A client that goes away aborts its job. Faults (Engine.SetFaults, Restart,
// or HTTP below /sim/) make an engine misbehave on demand.
//
// Sub-packages: core drives an engine in real time, ill has its faults, model its
// tokenizer and adapters, page its metrics, and fleet runs many in one process. Beside it:
// engine is the core without time, blockhash names blocks, kvstream publishes events, vocab
// is the built-in vocabulary, answer the text of answers, workload the clients.
//
// Concurrency: the methods of Engine are safe for concurrent use.
// Open starts goroutines; Close stops them and waits.
package sim
