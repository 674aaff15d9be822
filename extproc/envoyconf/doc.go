// Package envoyconf renders Envoy bootstrap configurations that put a pool of
// engines behind endpoint pickers.
//
// Two kinds exist. Resilient, the one to run by yourself, survives the death of
// every picker: Envoy holds the request body, response bodies stay out of the
// picker's way, and the load balancer falls back to its own choice. Gateway is
// what conformant gateways generate: full duplex both ways.
//
//  1. Params.normalize fills defaults and checks addresses.
//  2. Render executes the embedded template.
//
// It does not talk to Envoy and knows nothing about Kubernetes. Rendering is
// deterministic: the same Params give the same bytes. Safe for concurrent use.
package envoyconf
