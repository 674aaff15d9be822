// Package explained is one decision in full, as people and other programs read it: plain
// values with their JSON names. Whoever shows an explanation needs nothing of the picker.
package explanation
