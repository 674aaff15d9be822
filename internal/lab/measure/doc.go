// Package measure measures one replica with simulated engines: idle, at full load and at a fixed
// rate.
package measure
