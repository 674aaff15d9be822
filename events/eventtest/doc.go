// Package eventtest holds what tests of several packages know of engines' events:
// recorded batches and frames, and batches of any size.
package eventtest
