// Package problems is the table of everything that an operator may have to act on. Each entry has a
// stable code, such as GV3002, with its severity, meaning, effect on users, actions and a way to
// verify the fix.
//
// Status, the status page, log attributes, alerts, the metric grapevine_problems, the runbook and
// grapevine help CODE are made from this table. Tests fail if one of them lacks an entry.
//
// The first digit of a code is its area: 1 replica, 2 group, 3 engines, 4 cache knowledge,
// 5 endpoints and configuration, 6 traffic, 7 prefill and decode, 8 host and installation. Codes are
// never reused.
package problems
