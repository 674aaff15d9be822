// Package roots groups the names in engines' model lists by the model that they stand for: its
// source, served names and LoRA adapters. It is pure. Lists come from engines and are untrusted:
// conflicting claims are decided by majority, the same way at each replica.
package roots
