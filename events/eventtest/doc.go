// Package eventtest provides test data for engines' events: recorded batches and frames, and
// generated batches of any size.
package eventtest
