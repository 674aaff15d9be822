// Package commands implements the command line of grapevine: one file per subcommand. [Main] is the
// whole program, so that a picker with additional plugin types runs the same commands with a larger
// table. Package picker/epp is the public entrance.
package commands
