// Package sites demonstrates two clusters on one machine, connected by mutual TLS over a link with
// a delay. Cluster A is overloaded and cluster B is idle. The link is cut and healed; at the end
// cluster B is killed.
//
// [Run] opens both clusters as stages of package demo, sends single prompts, plays the scenes of
// script under an open-loop load, and counts each request at its origin. [Summary] holds the limits
// and the verdict.
package sites
