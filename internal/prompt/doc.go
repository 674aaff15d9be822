// Package prompt renders a request body into the byte string that the engine tokenizes. The picker
// can then compare prompts with cached blocks without running a tokenizer on the request path.
//
// A request passes through the package as follows:
//
//  1. Models.Render looks up the Model for the request's model name, alias or adapter
//     (models.go). Models are loaded and reloaded in the background.
//  2. Model.Render reads the keys of the body that affect the prompt (request.go). Responses
//     and Anthropic bodies are converted to chats (responses.go, messages.go).
//  3. The chat is converted to the conversation that engines pass to their template: contents
//     joined or kept as parts, tool arguments parsed, developer messages moved (chat.go,
//     tools.go).
//  4. The chat template writes the text (template.go, package jinja). If a template uses a
//     construct that package jinja does not support, an engine renders the prompt.
//  5. The text is converted to text space (package vocab): normalisation, dummy prefixes, BOS.
//     Token ids in a body are decoded into the same space.
//
// Bodies are read as Python values (package value), because templates compute with Python values.
//
// Prompts that no template can render are rendered by an engine (package remote).
//
// The package does not hash, match or store prompts, and it never logs prompt text.
//
// Limits: the values decoded from a body take at most 96 KiB plus six times its size. Beyond that,
// and beyond the bounds of package jinja, rendering fails with ReasonBounds. Rendering stops when
// its context ends.
//
// A Model is immutable and safe for concurrent use. Every error is an *Error with a Reason. On an
// error the caller falls back to approximate matching.
package prompt
