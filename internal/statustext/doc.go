// Package statustext words the status of a replica for people: for the status command and for top.
package statustext
