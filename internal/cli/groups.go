package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroup is a heading in a command's help with its flags, by name.
type FlagGroup struct {
	Title string
	Flags []string
}

// GroupFlags shows the flags of cmd under headings. Flags of no group come last.
func GroupFlags(cmd *cobra.Command, groups []FlagGroup) {
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		out := c.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", c.UseLine())
		if c.HasExample() {
			fmt.Fprintf(out, "\nExamples:\n%s\n", c.Example)
		}
		rest := map[string]bool{}
		c.Flags().VisitAll(func(f *pflag.Flag) { rest[f.Name] = !f.Hidden })
		show := func(title string, names []string) {
			set := pflag.NewFlagSet(title, pflag.ContinueOnError)
			set.SortFlags = false
			for _, name := range names {
				if f := c.Flags().Lookup(name); f != nil && rest[name] {
					set.AddFlag(f)
					rest[name] = false
				}
			}
			if usages := set.FlagUsagesWrapped(100); usages != "" {
				fmt.Fprintf(out, "\n%s:\n%s\n", title, strings.TrimRight(usages, "\n"))
			}
		}
		for _, g := range groups {
			show(g.Title, g.Flags)
		}
		var others []string
		c.Flags().VisitAll(func(f *pflag.Flag) { others = append(others, f.Name) })
		show("Other flags", others)
		return nil
	})
}
