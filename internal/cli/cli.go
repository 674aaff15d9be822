package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
)

// ExitCode is an error that ends the process with that code without a message.
type ExitCode int

func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// UsageError is an incorrect command line: exit code 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// UsageIf returns err as a usage error if it is target, such as a malformed address, and unchanged
// otherwise.
func UsageIf(err, target error) error {
	if errors.Is(err, target) {
		return UsageError{err}
	}
	return err
}

// codeOf maps an error to the process's exit code: 2 for an incorrect command line, 1 otherwise.
func codeOf(err error) int {
	var u UsageError
	if errors.As(err, &u) {
		return 2
	}
	return 1
}

// Main runs root until it returns, or until SIGINT or SIGTERM cancels its
// context, and ends the process. The standard logger and root's messages go to Stderr.
func Main(root *cobra.Command) {
	log.SetOutput(stderr)
	grpclog.SetLoggerV2(grpcLogger(os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL")))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	stop()
	if err == nil {
		stderr.Flush(flushTime)
		return
	}
	var code ExitCode
	if errors.As(err, &code) {
		exit(int(code))
	}
	fmt.Fprintln(root.ErrOrStderr(), root.Name()+":", err)
	exit(codeOf(err))
}

// grpcLogger returns gRPC's default logger, on Stderr.
func grpcLogger(severity string) grpclog.LoggerV2 {
	var infos, warnings io.Writer = io.Discard, io.Discard
	switch strings.ToLower(severity) {
	case "info":
		infos = stderr // writes those above as well
	case "warning":
		warnings = stderr
	}
	return grpclog.NewLoggerV2(infos, warnings, stderr)
}

// Root makes cmd the root of a command line. Main prints its errors, and incorrect flags are usage
// errors. Without a subcommand it prints its help.
func Root(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subcommands...)
	cmd.SetHelpCommand(newHelp(nil))
	completeValues(cmd)
	rejectUnknownShells(cmd)
	return WithFlagHint(cmd, nil)
}

// NoArgs rejects positional arguments with a usage error. In a command that has subcommands the
// error names the subcommand that was most likely meant.
func NoArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasAvailableSubCommands():
		return unknownCommand(cmd, args[0])
	}
	hint := ""
	for _, name := range operands[cmd.Name()] {
		if IsAddress(args[0]) == (name == "admin") && cmd.Flags().Lookup(name) != nil {
			hint = "; did you mean --" + name + " " + args[0] + "?"
		}
	}
	return UsageError{fmt.Errorf("unexpected argument %q: %s takes flags only%s (see %s --help)", args[0], cmd.CommandPath(), hint, cmd.CommandPath())}
}

// operands are the flags for which users give an argument without the flag, by command.
var operands = map[string][]string{
	"serve": {"endpoints"}, "up": {"engine"}, "explain": {"request-id", "admin"},
	"status": {"admin"}, "members": {"admin"}, "flow": {"admin"}, "top": {"admin"}, "doctor": {"admin"}, "federation": {"admin"},
}

// IsAddress reports whether a word is an address or a URL of a listener.
func IsAddress(word string) bool {
	for _, scheme := range []string{"http://", "https://"} {
		word = strings.TrimSuffix(strings.TrimPrefix(word, scheme), "/")
	}
	_, port, err := net.SplitHostPort(word)
	_, number := strconv.Atoi(port)
	return err == nil && number == nil
}

// SubcommandsOf rejects the subcommands of another command of this module with a hint, and any
// other positional argument.
func SubcommandsOf(other string, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			for _, name := range names {
				if args[0] == name {
					return UsageError{fmt.Errorf("%s is a subcommand of %s: %s %s", name, other, other, name)}
				}
			}
		}
		return NoArgs(cmd, args)
	}
}

// NewLogger returns a logger that writes text or JSON lines to w, from level debug, info, warn or
// error on. Packages may have other levels: "info,picker/monitor=debug".
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	log, _, err := newLeveled(w, format, level)
	return log, err
}

// newLeveled returns a logger and the handler that has its levels.
func newLeveled(w io.Writer, format, level string) (*slog.Logger, *leveled, error) {
	levels, err := NewLevels(level)
	if err != nil {
		return nil, nil, UsageError{fmt.Errorf("--log-level: %w", err)}
	}
	h := &leveled{levels: levels, repeats: newRepeats()}
	o := &slog.HandlerOptions{Level: slog.LevelDebug} // the levels decide
	switch format {
	case "text":
		h.next = slog.NewTextHandler(w, o)
	case "json":
		h.next = slog.NewJSONHandler(w, o)
	default:
		return nil, nil, UsageError{fmt.Errorf("--log-format %q: want text or json", format)}
	}
	return slog.New(h), h, nil
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// IsTerminal reports whether f is a terminal that can be drawn on.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func versionLine(name, version string) string {
	return fmt.Sprintf("%s %s (%s)\n", name, version, runtime.Version())
}

// WithVersion gives root the flag --version, which prints the same as the subcommand version.
func WithVersion(root *cobra.Command, version string) *cobra.Command {
	root.Version = version
	root.SetVersionTemplate(strings.ReplaceAll(versionLine(root.Name(), version), "{{", ""))
	return root
}

// NewVersion returns the subcommand that prints the version of the command name.
func NewVersion(name, version string) *cobra.Command {
	var output Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  " + name + " version -o json",
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if output.IsText() {
				_, err := io.WriteString(out, versionLine(name, version))
				return err
			}
			return output.WriteLine(out, map[string]string{"version": version, "go": runtime.Version()})
		},
	}
	AddOutput(cmd, &output)
	return cmd
}
