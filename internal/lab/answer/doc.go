// Package answer is what simulated engines say: an endless text that is a
// function of the request alone, so that any engine gives the same answer and
// a client can tell every wrong byte.
//
// Like an answer to be sent back in the next turn, it has no leading or
// trailing white space and consists of words of the built-in vocabulary.
package answer
