// Package claims decides which replica of a group downloads the files of a model. It is pure.
//
// Each replica without the files of a repository claims them in stages: it wants them, it has
// claimed the download, it loads them, it has them. [Decide] compares a replica's own stage with the
// claims of the others: take the files from a replica that has them, wait for the replica that loads
// them, or go on to the next stage. Claims of a stopped replica disappear, and claims without
// progress expire, so that another replica takes over.
//
// There is no consensus. Two replicas that do not see each other both download, which costs a
// download and nothing else.
package claims
