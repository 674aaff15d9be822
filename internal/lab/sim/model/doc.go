// Package model has what a simulated engine knows of its model: the tokenizer of a real
// model's files, and the adapters that are loaded.
package model
