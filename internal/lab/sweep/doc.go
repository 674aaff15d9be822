// Package sweep plays grids of cases on several cores: loads, policies, fleets and
// seeds in all combinations.
//
//  1. A Source makes a load for a rate and a seed: of a trace or of a generated workload.
//  2. Saturation searches for the rate at which a fleet has enough, which shares of
//     load are of.
//  3. Sweep plays a Grid; internal/lab/report tabulates and plots.
//
// Invariants: results do not depend on the number of workers.
package sweep
