// Package kubekit runs a real Kubernetes API server, with etcd, for tests.
//
//  1. Start runs both on loopback with RBAC enabled, and loads the definitions of gateways and
//     inference pools. `make setup-kube` installs the components; a test fails if they are
//     missing.
//  2. Client and Config act as the administrator. User creates a user without permissions, and
//     Grant adds permissions.
//  3. Stopping and starting only the API server simulates an outage; etcd keeps its data.
//  4. Apply, Delete, Kubectl and Helm write. No controllers run: only tests create pods, with
//     the status they choose.
//
// Both processes die with the test process even if that is killed.
package kubekit
