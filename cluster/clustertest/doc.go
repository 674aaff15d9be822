// Package clustertest provides test fixtures for shared state. A Hub is a bus within one process, a
// Replica has one state of each kind with simple content, and a Reader shares a log of engines
// whose batches are known in advance.
//
// Its own tests run replicas with the production configuration, on real memberlist and gRPC
// sockets. Each runs as a process in its own network namespace, on a network that loses, delays and
// partitions packets:
//
//  1. The test binary starts itself once per member, in a new user and network namespace. The
//     member opens a TUN device there, assigns it an address, and passes the device to the
//     test.
//  2. The test forwards packets between the devices by destination address. A rule per pair of
//     members determines the loss and the delay.
//  3. The test sends commands to the members over pipes and queries their state: content
//     digests, positions, gauges, the status line.
//
// A namespace lives as long as its member, and a member exits with the test, so there is nothing to
// clean up. These tests need Linux, /dev/net/tun, and either unprivileged user namespaces or root.
// Without these they fail with a message. They need no other program and no kernel module for
// traffic shaping.
//
// Package sim simulates whole groups in virtual time.
package clustertest
