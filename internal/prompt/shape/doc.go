// Package shape gives messages and tools the form that engines' request models give them
// before a template sees them. It works on values alone.
package shape
