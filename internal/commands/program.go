package commands

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/migrate"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/pd/sidecar/command"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Program is a picker program: its version, and the plugin types that its configurations may name.
type Program struct {
	Version string
	Plugins plugin.Table
}

// Main runs the command line in os.Args and ends the process.
func Main(p Program) {
	os.Args = implied(os.Args)
	cli.Main(newScreen(p, os.Stdout, cli.Stderr()))
}

// newScreen returns the command line with output that is safe for terminals: control characters in
// names and errors of untrusted peers are escaped.
func newScreen(p Program, out, errOut io.Writer) *cobra.Command {
	root := newRoot(p)
	root.SetOut(cli.Printable(out))
	root.SetErr(cli.Printable(errOut))
	return root
}

// implied inserts the command epp into a command line that begins with a flag, as other endpoint
// pickers have. It also inserts the dashes that command lines of other sidecars omit.
func implied(args []string) []string {
	if len(args) > 1 && args[1] == "sidecar" {
		return append(slices.Clone(args[:2]), command.NormalizeDashes(args[2:])...)
	}
	if len(args) < 2 || !strings.HasPrefix(args[1], "-") {
		return args
	}
	switch args[1] {
	case "-version", "-help": // with one dash, as programs with Go's flag package print it
		return append([]string{args[0], "-" + args[1]}, args[2:]...)
	case "-h", "--help", "--version", "--":
		return args
	case "-v":
		if len(args) == 2 { // with a value it is the log level of other pickers
			return []string{args[0], "--version"}
		}
	}
	return slices.Insert(slices.Clone(args), 1, "epp")
}

func newRoot(p Program) *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:   "grapevine",
		Short: "Endpoint picker for LLM inference behind Envoy",
		Long: `Grapevine chooses, for each LLM request from Envoy, the engine that can answer it
soonest. All replicas are active: they follow the engines' KV-cache events and share
one prefix index and one view of in-flight load.

Simulated engines, demos, benchmarks and trace replay are in grapevine-lab.

grapevine help codes lists the problems that status, log and alerts name by code.

Exit codes: 0 success, 1 failure, 2 usage error.`,
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) > 0 {
				if err := codeAsCommand(words[0]); err != nil {
					return cli.UsageError{Err: err}
				}
			}
			return cli.SubcommandsOf("grapevine-lab", "sim", "demo", "replay", "record", "bench", "conformance", "corpus", "gate", "nats")(cmd, words)
		},
	}, newServe(p), newUp(p), newEPP(p), command.New(), newMigrate(p), newCheck(p), newExplain(p), newEnvoyConfig(), newStatus(), newTop(), newDoctor(p), newLogLevel(), newFlightRecord(), newFlow(), newMembers(), newFederation(), cli.NewMan(p.Version), cli.NewVersion("grapevine", p.Version))
	cli.WithTopics(root, codeTopics())
	cli.Synonyms(root, commandSynonyms)
	return cli.WithFlagHint(cli.WithVersion(root, p.Version), func(cmd *cobra.Command, name string) string {
		if cmd.Name() == "serve" && migrate.Knows(name) {
			return "other endpoint pickers have it: grapevine epp takes their flags, and grapevine migrate translates them"
		}
		return flagSynonym(cmd, name)
	})
}

// codeTopics is the help on problems by their code.
func codeTopics() cli.Topics {
	t := cli.Topics{Use: "codes | CODE", Words: []string{"codes\tList the codes of problems"}, Text: codeText, Hint: codeHint}
	for _, p := range problems.Table {
		t.Words = append(t.Words, string(p.Code)+"\t"+p.Title)
	}
	return t
}

// codeText returns the help on a code, or "" for other words.
func codeText(word string) string {
	if word == "codes" {
		return problems.Overview()
	}
	if p, ok := problems.Lookup(word); ok {
		return p.Help()
	}
	if p, ok := problems.OfAlert(word); ok {
		return p.Help()
	}
	return ""
}

// codeHint names the problems that a word may mean: a mistyped code or alert, or a word of titles.
func codeHint(word string) string {
	var names, found []string
	for _, p := range problems.Table {
		names = append(names, string(p.Code))
		if p.Alert != nil {
			names = append(names, p.Alert.Name)
		}
		if len(word) > 3 && strings.Contains(p.Title, strings.ToLower(word)) {
			found = append(found, fmt.Sprintf("%s (%s)", p.Code, p.Title))
		}
	}
	upper := strings.ToUpper(word)
	switch {
	case len(found) > 0:
		return fmt.Sprintf("%q is no command. Problems about it: %s", word, strings.Join(found, ", "))
	case strings.HasPrefix(upper, "GV") || strings.HasPrefix(upper, "GRAPEVINE"):
		if hint := strict.DidYouMean(word, names); hint != "" {
			return fmt.Sprintf("no problem or alert %q; %s", word, hint)
		}
		return fmt.Sprintf("no problem or alert %q; grapevine help codes lists all", word)
	}
	return ""
}
