// Package podkit runs the containers of Kubernetes pods as their specifications say, for tests.
//
//  1. [Main] runs a package's tests in a network and a mount namespace of their own. This requires
//     root; the tests fail without it.
//  2. [Open] creates a kit for an API server of kubekit. [Kit.Deployment] and [Kit.Manifest] create
//     a pod object and start its containers; [Pod.WaitReady] runs the probes of the specification.
//  3. Each pod has a network namespace at an address of its own. Each container has its own root
//     folder, arguments, environment, user and mounts. Nothing is added or replaced.
//  4. [Program] runs a program in a separate file system, without a pod.
//  5. [Kit.Expose] makes Services reachable by name and cluster address from inside pods.
//
// The kit stands in for kubelet, kube-proxy and the cluster's DNS. A field that the kit does not
// support fails the test.
package podkit
