// Package sim serves simulated inference engines that behave like vLLM towards a picker:
// OpenAI-style HTTP, a metrics page, KV-cache events with replay, a paged prefix cache and
// continuous batching with a step-time model. There is no inference: the text of a response is a
// function of the request (package answer), and durations are computed (package engine).
//
// A request is processed as follows:
//
//  1. A handler reads the body, renders and tokenizes the prompt, generates the response and
//     names the blocks of both.
//  2. It posts a job to one core (one data-parallel rank).
//  3. The core's goroutine executes a step of the engine, waits for the step's duration
//     divided by Speed, publishes its cache events and reports the number of available tokens
//     to the jobs.
//  4. The handler writes these tokens, as server-sent events or in one body.
//
// A client that disconnects aborts its job. Faults (Engine.SetFaults, Restart, or HTTP below /sim/)
// make an engine misbehave on demand.
//
// Sub-packages: core drives an engine in real time, faults defines the faults, model the tokenizer
// and adapters, page the metrics, and fleet runs many engines in one process. Related packages:
// engine is the core without time, blockhash names blocks, kvstream publishes events, vocab is the
// built-in vocabulary, answer generates responses, workload the clients.
//
// Concurrency: the methods of Engine are safe for concurrent use. Open starts goroutines; Close
// stops them and waits.
package sim
