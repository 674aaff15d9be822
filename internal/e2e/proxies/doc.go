// Package proxies runs the example configurations for proxies without external processing
// (deploy/proxies) in real nginx, HAProxy and Caddy, and those for Envoy (deploy/envoy). It contains
// only tests; make test-proxies runs them.
//
//  1. A rig opens two engines, the pick listener with a scripted chooser, and one proxy (rig_test.go).
//     The proxy runs the unchanged files of its example. They decide its addresses, and
//     docs/proxies.md its folder.
//  2. Every kind of request must get the engine's own answer, be sent to the picked
//     endpoint, and be reported as ended by the proxy's log. Then an engine dies, a client
//     leaves, the picker refuses, and the picker dies (proxies_test.go).
//  3. Envoy runs with the files of deploy/envoy, in front of simulated engines and a replica
//     (envoy_test.go).
//
// A limitation of a proxy is a field of its entry in the list, and is documented in
// docs/proxies.md.
package proxies
