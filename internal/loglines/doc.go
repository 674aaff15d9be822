// Package loglines keeps log records until it is time to write them: code that holds a mutex
// adds them, and its caller writes them once the mutex is free.
package loglines
