// Package answer reads what a picker wants to know from an engine's answer as
// it passes by in pieces cut anywhere: the first generated text, the number of
// tokens that have come, and the usage that the engine reports.
//
// It understands OpenAI completions and chats, Responses and Anthropic messages,
// streamed or not. It holds no more of an answer than one usage report and the
// head in which the first text is looked for; a compressed one is not read.
//
// A Scan is reused from answer to answer and then allocates nothing. It is used
// by one goroutine at a time.
package answer
