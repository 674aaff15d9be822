// Package command is the command line of the sidecar: its flags, including flags of other routing
// sidecars, and its listeners. Package sidecar contains the proxy.
package command
