// Package programs limits how many agent runs use the engines at once, so that their cached prompts
// stay in KV memory between two turns.
//
//  1. Config.Identify finds the program of a request: a run of one agent and its sub-agents.
//  2. Core.Offer admits the request, or keeps it while the contexts of running programs fill the
//     engines' memory. Programs are admitted whole: the oldest ones first, in turn among tenants.
//  3. Core.Place corrects the program's footprint by the part of the prompt that an engine computes.
//  4. Core.Release ends the turn. The context counts for a while longer, because the next turn
//     usually follows within seconds.
//
// The package does not choose endpoints, and does not read prompts. Requests without a program pass.
//
// Invariants: the footprint is the sum of the counted contexts. The oldest program is never kept. A
// request is kept for at most its limit. State is bounded; requests beyond the bound pass and are
// counted.
//
// Concurrency: Core is a state machine without a clock, locks or goroutines, for one goroutine at a
// time. Package admission adds these.
package programs
