// Package cli has the common parts of this module's commands: exit codes, command-line errors,
// loggers and versions.
//
// A command's main is one call of Main with its root command.
package cli
