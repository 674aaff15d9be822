// Package ill has what makes a simulated engine ill: which faults there are, shares of
// requests, and connections that freeze.
package faults
