// Package fit learns the factors of a linear model with three inputs from one
// sample after the other. It is plain arithmetic: no clock, no lock, no memory.
package fit
