// Package proxies runs the example configurations for proxies that do not speak
// external processing (deploy/proxies) in real nginx, HAProxy and Caddy. It holds
// tests only; make test-proxies runs them.
//
//  1. A rig opens two engines, the pick listener with a chooser that the test scripts,
//     and one proxy with its example, in which only addresses are replaced
//     (rig_test.go).
//  2. Every kind of request must be answered as by the engine itself, go where the
//     picker said, and be ended by the proxy's log; then an engine dies, a client
//     leaves, the picker refuses, and the picker dies (proxies_test.go).
//
// What a proxy cannot do is a field of its entry in the list, and stands in
// docs/proxies.md.
package proxies
