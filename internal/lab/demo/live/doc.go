// Package live shows the whole of Grapevine on one machine for a minute: simulated engines,
// several replicas, a real Envoy and chats, as a live table.
//
// The main path: Run has a rig start the engines, the replicas and Envoy; it drives the same
// workload first round robin, then through the picker; it kills a replica on the way; it ends
// with a Summary.
package live
