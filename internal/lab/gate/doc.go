// Package gate measures the cost of a request and compares it with stored figures.
//
//  1. A [Stand] starts simulated engines, one or more replicas, and a no-op
//     external-processing server on the same grpc-go version.
//  2. A load plays short slices against replica and no-op in random order. Each
//     round gives one ratio of CPU time per request; the row is the median of
//     these ratios, and its error comes from their quartiles. A replica built
//     from the stored commit takes part, and decides whether a row is worse.
//  3. Kernels measure single steps (a decision, a prompt match) on one thread
//     against a fixed calibration loop.
//  4. [Compare] reports rows that are more than [Tolerance] above the stored
//     value by more than their error. Counts must not rise at all.
//  5. A CPU profile of the replica is reduced to shares by function, so that a
//     failure names the functions that grew.
//
// Ratios within one run stay stable on a loaded machine; absolute times do not.
package gate
