// Package ports reserves TCP ports of 127.0.0.1 for listeners that come later,
// in this process or in another one, go away and come back.
//
// A port that was found free and let go again can be anybody's a moment later.
// On Linux a reserved one is bound to a socket that does not listen: the system
// gives it to nobody who asks for any port, neither to listen nor to connect from,
// and another Reserve does not get it. Who listens on it by its number may, if
// its socket has SO_REUSEADDR, which Go, Envoy and libzmq set. Until then it
// refuses connections. Elsewhere a port is only found free.
//
// Ports lie below the range from which systems give ports to outgoing connections,
// so that nobody gets their UDP sides by chance either. All functions may be
// called concurrently.
package ports
