package migrate

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// Translation is a command line of serve and the differences.
type Translation struct {
	Args  []string
	Notes []string // "--flag: text"
	Help  bool     // help was requested
}

// Knows reports whether other pickers have a flag with that name.
func Knows(name string) bool {
	return slices.ContainsFunc(foreignFlags, func(f foreignFlag) bool { return f.name == kebab(name) })
}

// Translate translates another picker's arguments, which may include flags of serve. fl has the
// flags of serve and receives the others. discovery names the flags that locate engines, used if no
// file does. An error is a [cli.UsageError].
func Translate(fl *pflag.FlagSet, discovery, args []string) (t Translation, err error) {
	fl.Init("epp", pflag.ContinueOnError)
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(kebab(name)) })
	fl.BoolVarP(&t.Help, "help", "h", false, "")
	own := map[string]bool{}
	fl.VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	for _, f := range foreignFlags {
		switch {
		case own[f.name]: // same name here
		case f.value == boolValue:
			fl.Bool(f.name, false, "")
		case f.name == "v":
			fl.StringP("v", "v", "", "")
		default:
			fl.String(f.name, "", "")
		}
	}
	if err := fl.Parse(doubleDashes(fl, args)); err != nil {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			err = fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), cli.NearestFlag(fl, unknown.GetSpecifiedName()))
		}
		return t, cli.UsageError{Err: err}
	}
	for _, a := range fl.Args() {
		if a == "" { // templates of other projects leave these where an option is off, and other pickers ignore them
			continue
		}
		if a != "true" && a != "false" {
			return t, cli.UsageError{Err: fmt.Errorf("unexpected argument %q", a)}
		}
		// A chart may write --switch "false" as two arguments. The other picker then sets the
		// switch and ignores the word.
		t.Notes = append(t.Notes, fmt.Sprintf("%q has no effect: a boolean flag takes its value after =", a))
	}
	said := map[string]bool{}
	fl.Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains(discovery, f.Name) && fl.Changed("endpoints"):
			t.Notes = append(t.Notes, "--"+f.Name+": --endpoints names the engines")
		case own[f.Name] && f.Name != "help":
			said[f.Name] = true
			t.Args = append(t.Args, ownArgs(f)...)
		}
	})
	for i := range foreignFlags {
		if f := fl.Lookup(foreignFlags[i].name); f.Changed && !own[f.Name] && err == nil {
			err = t.take(&foreignFlags[i], strings.Trim(f.Value.String(), `"`), said) // a chart puts quotes into values
		}
	}
	if !said["metrics-compat"] {
		t.Args = append(t.Args, "--metrics-compat=true") // keep dashboards and alerts working
	}
	return t, err
}

// ownArgs formats a flag of serve as it was given.
func ownArgs(f *pflag.Flag) (args []string) {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		for _, v := range list.GetSlice() {
			args = append(args, "--"+f.Name+"="+v)
		}
		return args
	}
	return []string{"--" + f.Name + "=" + f.Value.String()}
}

// take translates one flag. said has the names given as flags of serve.
func (t *Translation) take(f *foreignFlag, value string, said map[string]bool) error {
	if f.to != nil {
		flags, err := f.to(value)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--%s: %w", f.name, err)}
		}
		for _, s := range flags {
			if !said[s.name] {
				said[s.name] = true
				t.Args = append(t.Args, "--"+s.name+"="+s.value)
			}
		}
	}
	if f.note != "" && (f.quiet == nil || !f.quiet(value)) {
		t.Notes = append(t.Notes, "--"+f.name+": "+f.note)
	}
	return nil
}

// doubleDashes converts -name to --name, which Go's flag package accepts.
func doubleDashes(fl *pflag.FlagSet, args []string) []string {
	out := make([]string, 0, len(args))
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		if strings.HasPrefix(a, "-") && len(name) > 1 && !strings.HasPrefix(name, "-") && fl.Lookup(name) != nil {
			a = "-" + a
		}
		out = append(out, a)
	}
	return out
}

// Write writes the command line, and the notes as comments.
func (t *Translation) Write(w io.Writer) {
	fmt.Fprint(w, "grapevine serve")
	for _, a := range t.Args {
		fmt.Fprintf(w, " \\\n  %s", quoted(a))
	}
	fmt.Fprintln(w)
	for _, n := range t.Notes {
		fmt.Fprintln(w, "#", n)
	}
}

// quoted quotes an argument for a shell.
func quoted(a string) string {
	if strings.ContainsAny(a, " \t\n'\"$`\\|&;<>(){}*?!#~[]") {
		return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return a
}
