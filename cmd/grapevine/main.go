package main

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/migrate"
	"github.com/grapevine-epp/grapevine/pd/sidecar/command"
)

// version is set by the linker (see Makefile).
var version = "dev"

func main() {
	os.Args = implied(os.Args)
	cli.Main(newScreen(os.Stdout, cli.Stderr()))
}

// newScreen returns the command line as it writes to screens: names and errors of strangers
// are shown, not obeyed.
func newScreen(out, errOut io.Writer) *cobra.Command {
	root := newRoot()
	root.SetOut(cli.Printable(out))
	root.SetErr(cli.Printable(errOut))
	return root
}

// implied puts in the command epp where a command line begins with a flag, as
// those of other endpoint pickers do, and dashes that those of other sidecars leave out.
func implied(args []string) []string {
	if len(args) > 1 && args[1] == "sidecar" {
		return append(slices.Clone(args[:2]), command.NormalizeDashes(args[2:])...)
	}
	if len(args) < 2 || !strings.HasPrefix(args[1], "-") {
		return args
	}
	switch args[1] {
	case "-h", "--help", "--version", "--":
		return args
	case "-v":
		if len(args) == 2 { // with a value it is the log level of other pickers
			return []string{args[0], "--version"}
		}
	}
	return slices.Insert(slices.Clone(args), 1, "epp")
}

func newRoot() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:   "grapevine",
		Short: "Endpoint picker for LLM inference behind Envoy",
		Long: `Grapevine chooses, for each LLM request that Envoy asks about, the engine that can
answer it soonest. Its replicas are all active: they follow the engines' KV-cache
events and share one prefix index and one book of in-flight load.

Simulated engines, demos, benchmarks and the replay of traces are in grapevine-lab.

Exit codes: 0 success, 1 failure, 2 wrong command line.`,
		Args: cli.SubcommandsOf("grapevine-lab", "sim", "demo", "replay", "record", "bench", "conformance", "nats"),
	}, newServe(), newUp(), newEPP(), command.New(), newMigrate(), newCheck(), newExplain(), newEnvoyConfig(), newStatus(), newFlow(), newMembers(), newFederation(), cli.NewVersion("grapevine", version))
	return cli.WithFlagHint(cli.WithVersion(root, version), func(cmd *cobra.Command, name string) string {
		if cmd.Name() == "serve" && migrate.Knows(name) {
			return "other endpoint pickers have it: grapevine epp takes their flags, and grapevine migrate translates them"
		}
		return ""
	})
}
