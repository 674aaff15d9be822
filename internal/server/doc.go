// Package server assembles a replica: it builds, connects and stops all parts. It is the only
// package that imports all others.
//
// Open builds the parts in the order of the architecture drawing, from the index and the models up to
// the listeners. It joins the group before it reads the list of endpoints, and serves proxies last.
// Readiness depends on the state of the parts. Drain announces to proxies and peers that this replica
// accepts no more requests. Stop ends everything and waits.
//
// No part refers to the Server. It calls, in this order:
//
//   - open.go: keys, prefix index, configuration, engines and endpoint source.
//   - share.go: the group and the states that its replicas share.
//   - decide.go: the matcher of prompts, readiness, and the scheduler.
//   - listeners.go: the parts that describe the replica, and the listeners.
//
// Parts with behaviour of their own:
//
//   - configuration (configuration.go): the configuration in use and its reload.
//   - endpointLists (lists.go): the endpoint list while its source cannot be read.
//   - modelFinder (modelfiles.go) and peerFiles: files of the models that engines report.
//   - condition (condition.go) and cacheKnowledge: whether the replica is ready, and why not.
//   - reporter (status.go): the status, from which problems.go finds problems.
//   - groupDecisions (decisions.go) and dryRun (explain.go): explanations.
//   - xdsShare (xds.go): the discovery service for Envoy, and the replica's own pace.
package server
