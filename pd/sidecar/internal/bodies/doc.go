// Package bodies holds request bodies while legs read them. A body takes its memory from a budget
// as it fills, in buffers that are reused once the request and all of its legs have ended.
package bodies
