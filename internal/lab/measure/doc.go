// Package measure measures one replica in front of simulated engines: what it takes when idle,
// at full load and at a given rate.
package measure
