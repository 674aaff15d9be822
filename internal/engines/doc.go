// Package engines queries inference engines directly, without a daemon.
//
//  1. Ask and Tokenizers find the models that engines serve and the local folders of their
//     tokenizers. `grapevine up` needs both before it starts anything.
//  2. Examine implements `grapevine check --live` (live.go). It reports an engine's kind,
//     version and block size, compares its rendering of fixed chats with the local rendering,
//     and checks that its event streams and responses reflect the prompts sent to it
//     (eventprobe.go).
//
// It sends engines three fixed chats and two short completions, and no client data. Response sizes
// are bounded, and so is the time per engine.
package engines
