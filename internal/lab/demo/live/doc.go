// Package live shows all parts of Grapevine on one machine for a minute, as a live table: simulated
// engines, several replicas, a real Envoy and chats.
//
// The main path: Run starts the engines, the replicas and Envoy. It sends the same workload first
// round robin, then through the picker. During the second phase it kills a replica. It ends with a
// Summary.
package live
