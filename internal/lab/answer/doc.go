// Package answer generates the text of simulated engines. The text is endless and a function of the
// request alone, so any engine gives the same answer and a client can detect every wrong byte.
//
// The text has no leading or trailing white space and consists of words of the built-in vocabulary,
// so that a client can send it back in the next turn.
package answer
