// Package kubekit runs a real Kubernetes API server, with etcd, for tests.
//
//  1. Start runs both on loopback, with RBAC on, and loads the definitions of
//     gateways and inference pools. The parts are those of make setup-kube: a
//     test fails where they are missing.
//  2. Client and Config speak as the administrator; User makes another who has
//     no rights, and Grant gives some.
//  3. Stop and Start of the API server alone make an outage; etcd keeps what
//     there is.
//  4. Apply, Delete, Kubectl and Helm write. No controller runs: there are no
//     pods but those that a test writes, with the status that it gives them.
//
// Both die with the test process even when that is killed.
package kubekit
