// Package multicluster is a replica's part in a federation of clusters. It announces its pool and
// the hot prompts there, follows other clusters' announcements, and offers their pools to the
// scheduler.
//
// It combines the link to other clusters (cluster/federation/link), their representation as
// Kubernetes objects (cluster/federation/kube), and their prices (picker/remotecluster).
package multicluster
