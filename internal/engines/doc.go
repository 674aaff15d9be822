// Package engines asks inference engines about themselves, without a daemon.
//
//  1. Ask and Tokenizers find out which models engines serve, and where the tokenizers of
//     those are on this machine: what `grapevine up` needs before it starts anything.
//  2. Look finds out for `grapevine check --live` what an engine is and does (live.go): kind,
//     version, block size; whether it renders fixed chats as a model's folder does here;
//     whether its event streams and its answers tell of prompts that are sent to it (ear.go).
//
// It sends engines three fixed chats and two short completions, and nothing of any client.
// Answers are bounded, and so is the time for each engine.
package engines
