// Package parts finds the external programs and files that tests and the demo need: Envoy, a Python
// with the reference implementations, tokenizers of real models. `make setup` installs them into a
// cache folder outside the checkout; this package installs and downloads nothing. Start runs the
// Python programs that tests compare with, and Output buffers the output of programs.
//
// A missing part is a failure, never a skip: the message names the path and the command that
// installs it. All functions are safe for concurrent use.
//
// The package also reserves TCP ports of 127.0.0.1 for listeners that start later, in this process
// or another one, and may restart. On Linux a reserved port is bound to a socket that does not
// listen. The system does not assign it as an arbitrary port, but a process that names the port and
// sets SO_REUSEADDR (as Go, Envoy and libzmq do) may listen on it. Until then connections are
// refused. On other systems the port is only checked to be free. Reserved ports lie below the range
// of ephemeral ports.
package parts
