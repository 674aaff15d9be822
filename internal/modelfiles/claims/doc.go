// Package claims decides which replica of a group downloads the files of a model. It is pure.
//
// Each replica publishes a claim for each repository, with a stage: wanted, claimed, loading or
// ready. [Decide] compares a replica's stage with the claims of its peers. It returns the next step:
// take the files from a ready peer, wait for a peer that loads, or enter the next stage. Claims of a
// stopped replica disappear, and claims without progress expire. Another replica then takes over.
//
// There is no consensus. Two replicas that do not see each other both download, which costs a
// download and nothing else.
package claims
