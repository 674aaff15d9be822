// Package engines asks inference engines which models they serve, and looks for the
// tokenizers of those models on this machine: what `grapevine up` needs to know before it
// starts anything. It knows nothing of the daemon.
package engines
