// Package cli holds what the commands of this module have in common: exit codes,
// wrong command lines, loggers, versions, and how a command ends.
//
// A command's main is one call of Main with its root command. It knows nothing of
// what the commands do.
package cli
