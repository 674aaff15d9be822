// Package bodies holds the bodies of requests while legs read them: in memory that is taken
// from a budget as it fills, in buffers that are used again once the request and all of its
// legs are done with them.
package bodies
