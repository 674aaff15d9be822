// Package abroad is a replica's part in a federation of clusters: it tells the others of
// its pool and of the prompts that are hot there, follows what they tell, and gives the
// scheduler their pools to choose from.
//
// What it puts together: the link to other clusters (cluster/federation/link), the
// objects that Kubernetes shows of them (cluster/federation/kube), and their prices
// (picker/remotecluster).
package multicluster
