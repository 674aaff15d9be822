// Package pool models an engine's pool of KV blocks by vLLM's rules, including its store and
// eviction events. Tests of event readers use it as the reference.
package pool
