// Package envoyconf renders Envoy bootstrap configurations for a pool of engines behind endpoint
// pickers.
//
// There are two kinds. Resilient, for self-managed Envoys, survives the failure of all pickers:
// Envoy buffers the request body, response bodies bypass the picker, and the load balancer falls
// back to its own choice. Gateway is what conformant gateways generate: full duplex in both
// directions.
//
//  1. Params.normalize applies defaults and checks addresses.
//  2. Render executes the embedded template.
//
// The package does not connect to Envoy or Kubernetes. Rendering is deterministic: the same Params
// give the same bytes. Safe for concurrent use.
package envoyconf
