// Package tally counts how requests ended: for operators, by endpoint, model and status
// class, and apart from that what users saw ([Tally]).
//
// It decides nothing and knows no scheduler; who ends a request says how ([End]).
package outcomes
