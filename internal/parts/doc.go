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
//
// It also reserves TCP ports of 127.0.0.1 for listeners that come later, in this
// process or in another one, go away and come back. On Linux a reserved port is
// bound to a socket that does not listen: the system hands it to nobody who asks
// for an arbitrary port, while a process that names it and sets SO_REUSEADDR (as Go,
// Envoy and libzmq do) may listen on it. Until then it refuses connections.
// Elsewhere a port is only found free. Reserved ports lie below the range from which
// systems choose the source ports of outgoing connections.
package parts
