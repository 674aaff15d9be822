// Package roots groups the names in engines' model lists by their model: its source, served names
// and LoRA adapters. It is pure. Engines are untrusted: conflicting claims in their lists are
// decided by majority, in the same way at each replica.
package roots
