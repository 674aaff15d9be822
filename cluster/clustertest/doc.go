// Package clustertest helps to test what replicas share: a Hub is a bus within one
// process, a Replica has one state of each kind whose content is easy to look at, and
// a Reader shares a log of engines whose batches are known in advance.
//
// Its own tests run replicas as the daemon builds them, on real memberlist and gRPC
// sockets, each a process in a network namespace of its own, over a network that
// loses, delays and partitions:
//
//  1. The test binary starts itself once per member, in a new user and network
//     namespace. The member opens a TUN device there, gives it an address, and
//     hands the device to the test.
//  2. The test carries packets from device to device by destination address.
//     A rule per pair of members says what share is lost, and how late the
//     rest comes.
//  3. The test tells members over pipes what to do, and asks them what they
//     know: digests of the content, positions, gauges, the status line.
//
// A namespace lives as long as its member, and a member ends when the test does, so
// nothing is left to clean up. These tests need Linux, /dev/net/tun, and either
// unprivileged user namespaces or root; without, they fail and say so. No other program
// and no kernel module for traffic shaping is needed.
//
// Package sim below it simulates whole groups in virtual time.
package clustertest
