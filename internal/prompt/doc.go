// Package prompt turns a request's body into the byte string that the engine
// tokenizes, so that prompts and cached blocks can be compared without a
// tokenizer on the request path.
//
// The way of a request through the package:
//
//  1. Models.Render finds the Model of the request's model name, an alias or
//     an adapter (models.go). Models are loaded and reloaded in the background.
//  2. Model.Render reads the keys of the body that shape the prompt
//     (request.go); Responses and Anthropic bodies become chats (responses.go,
//     messages.go).
//  3. A chat becomes the conversation that engines give their template:
//     contents joined or kept as parts, tool arguments parsed, developer
//     messages moved (chat.go, tools.go).
//  4. The chat template writes the text (template.go, package jinja). A model whose
//     template has a construct that jinja does not know is left to engines.
//  5. The text is brought into text space (package vocab): normalisation, dummy
//     prefixes, BOS. Token ids in a body are decoded into the same space.
//
// Bodies are read as Python's values (package value), which templates compute
// with.
//
// Prompts that no template makes are rendered by an engine (package remote).
//
// What it does not do: hash, match, or keep prompts. It never logs prompt
// text.
//
// Bounds: what a body is read into takes at most 96 KiB and six times its size;
// beyond that, and beyond the bounds of package jinja, rendering ends with
// ReasonBounds. A rendering ends when its context does.
//
// A Model is immutable and safe for concurrent use. Every error is an *Error
// with a Reason; on an error the caller falls back to approximate matching.
package prompt
