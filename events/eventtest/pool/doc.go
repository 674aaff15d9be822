// Package pool is a model of an engine's pool of KV blocks by vLLM's rules, which
// announces what it stores and evicts: what tests of event readers take for the truth.
package pool
