// Package parts finds the external programs and files that tests and the demo
// need: Envoy, a Python with the reference implementations, tokenizers of real
// models. `make setup` installs them into a cache folder outside of the
// checkout; this package installs nothing and downloads nothing. Start runs
// the Python programs that tests compare with, and Output keeps what programs
// write.
//
// A part that is missing is a failure, never a skip: the message names the
// path that was looked at and the command that fills it. All functions may be
// called concurrently.
package parts
