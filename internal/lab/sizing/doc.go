// Package sizing searches the smallest number of engines that meets targets for a load.
//
//  1. ParseTarget reads a target, such as p90=2s.
//  2. Find replays the load on fleets of growing size, and checks the neighbors of the answer.
//  3. Answer.Write prints the sizes that were tried, the answer and its uncertainty.
//
// Invariants: a size meets a target only if every seed does. Results do not depend on the number of
// workers.
package sizing
