package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NewMan returns the command that writes manual pages of all commands of a program.
func NewMan(version string) *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write manual pages",
		Long:    "Writes a manual page (section 1) of each command to a folder.",
		Example: "  grapevine man /usr/local/share/man/man1\n  man grapevine-serve",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return UsageError{fmt.Errorf("%s takes one folder (see %s --help)", cmd.CommandPath(), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeMan(cmd.Root(), args[0], version)
		},
	}
}

func writeMan(cmd *cobra.Command, folder, version string) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(folder, name+".1"), manPage(cmd, name, version), 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			if err := writeMan(c, folder, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// manPage returns the manual page of a command.
func manPage(cmd *cobra.Command, name, version string) []byte {
	var b bytes.Buffer
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q \"Grapevine\"\n", strings.ToUpper(roff(name)), "grapevine "+version)
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(name), roff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.Long))
	if cmd.HasExample() {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.Example))
	}
	if cmd.HasAvailableFlags() {
		section("OPTIONS")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			short := ""
			if f.Shorthand != "" {
				short = "-" + f.Shorthand + ", "
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR", roff(short+"--"+f.Name))
			if kind := f.Value.Type(); kind != "bool" {
				fmt.Fprintf(&b, " \\fI%s\\fR", roff(kind))
			}
			fmt.Fprintf(&b, "\n%s", roff(f.Usage))
			if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && f.Name != "name" {
				fmt.Fprintf(&b, " (default %s)", roff(f.DefValue))
			}
			b.WriteByte('\n')
		})
	}
	section("EXIT STATUS")
	b.WriteString("0 success, 1 failure, 2 usage error.\n")
	var also []string
	if cmd.HasParent() {
		also = append(also, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			also = append(also, strings.ReplaceAll(c.CommandPath(), " ", "-"))
		}
	}
	if len(also) > 0 {
		section("SEE ALSO")
		b.WriteString(roff(strings.Join(also, "(1), ")) + "(1)\n")
	}
	return b.Bytes()
}

// roff escapes text for a manual page.
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
