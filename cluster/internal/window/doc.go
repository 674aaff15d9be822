// Package window tells messages that were taken before from new ones that come out of
// order, and (Row) which of those did not come that there are. It is a state machine without clock or lock: its owner serialises.
//
//  1. A sender numbers what it sends from 1 on, each number once. Who hears only part of
//     it sees gaps.
//  2. Take says of each number whether it is new, and remembers it. Numbers may come in
//     any order within Size of the largest one.
//  3. What is further behind is refused, whether it came before or not: nothing is kept
//     of it. So a number is taken at most once, in memory that does not grow.
package window
