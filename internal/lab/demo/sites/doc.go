// Package sites shows two clusters on one machine: one whose users ask for more than it can
// do, and one with nothing to do, joined by mutual TLS over a link with a delay that is cut
// and healed; the other one dies in the end.
//
// The main path: Run opens both as stages of package demo, asks single prompts, plays the
// scenes of script under a load that does not wait for answers, and counts each request
// where it began. Summary has the limits and the verdict.
package sites
