// Package guides runs the tutorials of the documentation word for word.
//
// Each shell block of a page runs in order, in a fresh copy of the checkout. Package
// internal/testkit/guide describes the comments that control a block, and how its output is
// compared. The tutorial for Kubernetes is run by package deploy.
package guides
