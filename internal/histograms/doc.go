// Package histograms makes the replica's histograms readable in two forms: with the fixed buckets that every
// scraper gets, and as native histograms for a Prometheus that asks for them.
//
// A native histogram has buckets of equal relative width wherever values fall, so quantiles are exact to a few
// percent without a choice of buckets. It costs an observation about 40 ns, and no allocation.
package histograms
