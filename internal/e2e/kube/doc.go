// Package kube runs Grapevine with real Kubernetes objects behind a real Envoy. It holds
// tests only; make test-gie, test-envoy-gateway and test-rolling run them.
//
//  1. A real API server runs (internal/testkit/kubekit), without a kubelet and without
//     controllers. A stub does what the tests need of them: pods of Deployments with an
//     address of their own on loopback, EndpointSlices of Services (stub_test.go).
//  2. A pod of a model server is an HTTP server that answers as echo-basic does; a pod of
//     an endpoint picker is grapevine with the arguments of its Deployment and its
//     rights, probed as the Deployment says (pods_test.go).
//  3. The gateway is a real Envoy on the addresses of the Gateways. The stub writes what
//     a control plane renders of HTTPRoutes and InferencePools, and the statuses
//     (gateway_test.go, envoy_test.go).
//  4. The conformance suite of the Gateway API Inference Extension runs as a program of
//     its own (internal/setup/gateways.sh), and its 14 tests are reported one by one
//     (gie_test.go).
//  5. Envoy Gateway, a whole control plane, renders a route to a pool
//     (internal/setup/eg, envoygateway_test.go).
//  6. A pool of simulated engines and a group of replicas are rolled under load
//     (rolling_test.go).
//
// The suite certifies gateways. The gateway here is the stub's: what is shown is that the
// picker does its part in every one of the tests.
package kube
