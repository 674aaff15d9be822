// Package pools serves several pools of endpoints in one process. Each pool has its own
// server.Server, on its own ext_proc port, with its own configuration, index, queues, load counts and
// shared state. A fault of one pool stays with this pool.
//
//  1. ReadFile reads the pools file (file.go). Pools can also be found while the process runs, by a
//     Finder: in Kubernetes, the InferencePools that refer to the picker's Service.
//  2. Open opens what the pools share: the connection to the other replicas, the administration and
//     health listeners, and the memory, which is divided equally (pools.go).
//  3. Each pool is opened, retried while it fails, and drained when it is removed, by its own
//     goroutine (pool.go).
//  4. The administration listener serves the metrics of all pools on one page, with the label pool
//     (gather.go), and the other pages of each pool below /pools/NAME (status.go).
//
// The process is ready once every pool of the start has been given the chance to settle, and from
// then on while at least one pool is ready: Kubernetes has one readiness for all ports of a pod. The
// health service on each pool's own port reports on this pool.
package pools
