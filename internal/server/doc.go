// Package server is the whole daemon: it builds every part, wires them and
// owns their lives. It is the only package that knows everyone.
//
// The main path: Open reads the endpoints, opens the event streams, the metric
// poller, the cluster, the ext_proc listener and the admin port, in that order;
// readiness follows from what the parts know. Drain tells proxies and peers that
// no more requests are welcome; Stop ends everything and waits.
//
// What is here is wiring: the prompt producer (models.go), the matcher that
// joins precise, approximate and speculative knowledge (matcher.go), the audit
// of predictions (audit.go), what users see (status.go), and what replicas share
// (share*.go): share_plan.go decides for every event stream whether it is read here
// and whether it is shared, share_index.go takes what was read to the group's log,
// share_store.go is the index as that log sees it. xds.go tells Envoy of pool and replicas.
package server
