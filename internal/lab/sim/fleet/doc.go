// Package fleet opens many simulated engines in one process, and writes their endpoints file.
package fleet
