// Package vitals reads the signs of life of an engine: its /health and its metrics page. Every method
// makes one or no request, and returns within its limit. All are safe for concurrent use.
package vitals
