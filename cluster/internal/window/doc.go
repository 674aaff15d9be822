// Package window detects duplicate and missing message numbers. It is a state machine without a
// clock or a lock; its owner serializes calls.
//
//  1. A sender numbers its messages from 1 and uses each number once. A receiver that gets
//     only a part of the messages sees gaps.
//  2. [Window.Take] returns whether a number is new and records it. Numbers may arrive in any
//     order within [Size] of the largest one.
//  3. Numbers further behind are rejected, whether or not they arrived before. So a number is
//     accepted at most once, in constant memory.
//  4. [Row] tracks which frames of a consecutive sequence are missing.
package window
