// Package answer extracts data from an engine's response as it passes in arbitrary chunks: the
// first generated text, the number of tokens, and the reported usage.
//
// It supports OpenAI completions and chats, Responses and Anthropic messages, streamed or not. It
// holds at most one usage report and the head in which the first text is searched. Compressed
// responses are not read.
//
// A Scan is reused between responses and then allocates nothing. It must be used by one goroutine
// at a time.
package answer
