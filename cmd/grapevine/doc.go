// Command grapevine is an endpoint picker for LLM inference: an Envoy external-processing server
// whose replicas are all active and share their state.
package main
