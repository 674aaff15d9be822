// Package server is the whole daemon: it builds every part, wires them and
// owns their lives. It is the only package that knows everyone.
//
// The main path: Open reads the endpoints, opens the event streams, the metric
// poller, the cluster, the ext_proc listener and the admin port, in that order;
// readiness follows from what the parts know. Drain tells proxies and peers that
// no more requests are welcome; Stop ends everything and waits.
//
// What is here is wiring: the prompt producer (prompt.go), the matcher that
// joins precise, approximate and speculative knowledge (matcher.go), the audit
// of predictions (audit.go) and what users see (status.go).
package server
