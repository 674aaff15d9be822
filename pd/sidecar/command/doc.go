// Package command is the command line of the proxy beside a decode engine: its flags, those
// of other routing sidecars, and the listeners that it opens. The proxy is in package
// sidecar.
package command
