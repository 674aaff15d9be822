// Package model provides a simulated engine's tokenizer, loaded from a real model's files, and its
// adapters.
package model
