package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/strict"
)

// FlagHint returns advice for an unknown flag of cmd, given without dashes, or "".
type FlagHint func(cmd *cobra.Command, name string) string

// WithFlagHint adds a hint for unknown flags, in addition to the nearest known name.
func WithFlagHint(root *cobra.Command, hint FlagHint) *cobra.Command {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err, hint) })
	return root
}

func flagError(cmd *cobra.Command, err error, hint FlagHint) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return UsageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	}
	// The flag may belong to a mistyped subcommand or one of another program.
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasAvailableSubCommands() && cmd.Args != nil {
		if err := cmd.Args(cmd, words); err != nil {
			return err
		}
	}
	name := unknown.GetSpecifiedName()
	if hint != nil {
		if advice := hint(cmd, name); advice != "" {
			return UsageError{fmt.Errorf("unknown flag --%s of %s; %s", name, cmd.CommandPath(), advice)}
		}
	}
	return UsageError{fmt.Errorf("unknown flag --%s of %s%s", name, cmd.CommandPath(), NearestFlag(cmd.Flags(), name))}
}

// NearestFlag returns "; did you mean --NAME?" for a mistyped name, or a pointer to the help.
func NearestFlag(fl *pflag.FlagSet, name string) string {
	names := []string{"help"}
	fl.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := strict.Nearest(name, names); near != "" {
		return "; did you mean --" + near + "?"
	}
	return "; --help lists the flags"
}

// commandNames returns the names of the subcommands of cmd.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
			names = append(names, c.Aliases...)
		}
	}
	return names
}

// unknownCommand returns the usage error for an unknown subcommand of cmd. It names the subcommand with that
// word in its SuggestFor, the one with the nearest name, or all.
func unknownCommand(cmd *cobra.Command, word string) error {
	for _, c := range cmd.Commands() {
		if slices.ContainsFunc(c.SuggestFor, func(other string) bool { return strings.EqualFold(other, word) }) {
			return UsageError{fmt.Errorf("unknown command %q of %s; did you mean %q?", word, cmd.CommandPath(), c.Name())}
		}
	}
	names := commandNames(cmd)
	if len(names) == 0 {
		return UsageError{fmt.Errorf("unknown command %q: %s has no subcommands", word, cmd.CommandPath())}
	}
	if hint := strict.DidYouMean(word, names); hint != "" {
		return UsageError{fmt.Errorf("unknown command %q of %s; %s", word, cmd.CommandPath(), hint)}
	}
	slices.Sort(names)
	return UsageError{fmt.Errorf("unknown command %q of %s; the commands are %s", word, cmd.CommandPath(), strings.Join(names, ", "))}
}

// Synonyms makes the answer to an unknown subcommand of root name the one for which other programs use that
// word. It maps subcommands to such words.
func Synonyms(root *cobra.Command, words map[string][]string) *cobra.Command {
	for _, c := range root.Commands() {
		c.SuggestFor = append(c.SuggestFor, words[c.Name()]...)
	}
	return root
}

// Topics is help on words that are not commands. Text returns "" for words that it does not have.
type Topics struct {
	Use   string   // what may stand in place of a command, such as CODE
	Words []string // for completion, each with its description after a tab
	Text  func(word string) string
	Hint  func(word string) string // on a word that is neither; "": no hint
}

// WithTopics adds topics to the help command of root.
func WithTopics(root *cobra.Command, t Topics) *cobra.Command {
	root.SetHelpCommand(newHelp(&t))
	return root
}

// newHelp returns the help command. Unlike cobra's, it fails for an unknown command.
func newHelp(topics *Topics) *cobra.Command {
	use, short := "help [COMMAND]", "Show the help of a command"
	if topics != nil {
		use, short = "help [COMMAND | "+topics.Use+"]", "Show the help of a command or of a problem"
	}
	return &cobra.Command{
		Use:   use,
		Short: short,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			if topics != nil {
				names = append(names, topics.Words...)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			if topics != nil && len(args) == 1 {
				if text := topics.Text(args[0]); text != "" {
					_, err := io.WriteString(cmd.OutOrStdout(), text)
					return err
				}
			}
			for _, word := range args {
				next := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
				if next < 0 {
					if topics != nil && topics.Hint != nil && strict.Nearest(word, commandNames(at)) == "" {
						if hint := topics.Hint(word); hint != "" {
							return UsageError{errors.New(hint)}
						}
					}
					return unknownCommand(at, word)
				}
				at = at.Commands()[next]
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// flagValues are the values of enumerated flags, by flag name, for shell completion.
var flagValues = map[string][]string{
	"answer-model":       {"client", "engine"},
	"cluster":            {"none", "gossip", "nats"},
	"federation-objects": {"namespace", "all", "none"},
	"kind":               {"resilient", "gateway", "plain", "bootstrap"},
	"log-format":         {"text", "json"},
	"log-level":          {"debug", "info", "warn", "error"},
	"output":             {"text", "wide", "json", "yaml"},
	"plot-format":        {"svg", "png"},
	"preset":             {"8b", "70b"},
	"unknown-model":      {"reject", "place"},
}

// completeValues registers the completion of flag values in cmd and all its subcommands.
func completeValues(cmd *cobra.Command) {
	for name, values := range flagValues {
		if cmd.Flags().Lookup(name) != nil {
			// It fails only for a flag that already has a completion.
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
}

// rejectUnknownShells makes the completion command fail for a shell that it does not have. Cobra's
// prints its help and succeeds.
func rejectUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = NoArgs
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// Complete registers values for the completion of one flag that only the command can list.
func Complete(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag: a bug
	}
}
