// Package kube runs Grapevine with real Kubernetes objects behind a real Envoy. It contains only
// tests; make test-gie, test-envoy-gateway and test-rolling run them.
//
//  1. A real API server runs without kubelet and controllers (internal/testkit/kubekit). A stub
//     replaces them: it creates the pods of Deployments with loopback addresses and the
//     EndpointSlices of Services (stub_test.go).
//  2. A model server pod is an HTTP server that answers as echo-basic does. An endpoint picker pod
//     runs grapevine with the arguments, rights and probes of its Deployment (pods_test.go).
//  3. The gateway is a real Envoy at the addresses of the Gateways. The stub renders HTTPRoutes and
//     InferencePools as a control plane does, and writes their statuses (gateway_test.go,
//     envoy_test.go).
//  4. The conformance suite of the Gateway API Inference Extension runs as its own program
//     (internal/setup/gateways.sh). Its 14 tests are reported individually (gie_test.go).
//  5. Envoy Gateway, a complete control plane, renders a route to a pool (internal/setup/eg,
//     envoygateway_test.go).
//  6. A pool of simulated engines and a group of replicas are replaced under load (rolling_test.go).
//
// The suite certifies gateways. With the stub as the gateway, it shows that the picker passes its
// part of every test.
package kube
