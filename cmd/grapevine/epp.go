package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// eppAdmin is where other pickers serve metrics and health unless told otherwise:
// their charts probe the pod's address.
const eppAdmin = "--admin=0.0.0.0:9090"

func newEPP() *cobra.Command {
	serve := newServe()
	cmd := &cobra.Command{
		Use:   "epp",
		Short: "Run a replica with the flags of other endpoint pickers",
		Long: `Runs what serve runs and takes the flags of the endpoint pickers of llm-d and of the Gateway
API inference extension as they stand, so that the image can be exchanged in their charts and
manifests. What a flag means here, or that it means nothing, is said once at the start. Flags
of serve may be given too and count more. grapevine migrate prints the command line of serve.

A command line that begins with a flag means epp.`,
		Example: `  grapevine epp --config-file /config/default-plugins.yaml --grpc-port 9002 --secure-serving=false --endpoints endpoints.yaml
  grapevine --zap-encoder=json --v=4 --config-file epp.yaml --endpoints endpoints.yaml`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := translate(args)
			if err != nil {
				return err
			}
			if t.help {
				return cmd.Help()
			}
			for _, n := range t.notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "grapevine: note:", n)
			}
			serve.SetArgs(append([]string{eppAdmin}, t.args...))
			serve.SilenceErrors, serve.SilenceUsage = true, true
			serve.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.UsageError{Err: err} })
			return serve.ExecuteContext(cmd.Context())
		},
	}
	return cmd
}

func newMigrate() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate --from-args ARG...",
		Short: "Translate the command line of another endpoint picker",
		Long: `Prints the command line of grapevine serve that does what the given arguments of another
endpoint picker do, and every difference as a comment. A container's args can be pasted.`,
		Example: `  grapevine migrate --from-args --pool-name=llama --grpc-port=9002 --config-file=/config/epp.yaml --v=4
  grapevine migrate --from-args $(kubectl get deployment epp -o jsonpath='{.spec.template.spec.containers[0].args[*]}')`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var rest []string
			for _, a := range args {
				if a != "--from-args" {
					rest = append(rest, a)
				}
			}
			t, err := translate(rest)
			if err != nil {
				return err
			}
			if t.help || len(rest) == 0 {
				return cmd.Help()
			}
			t.print(cmd.OutOrStdout())
			return nil
		},
	}
}

// translation is a command line of serve and what differs.
type translation struct {
	args  []string
	notes []string // "--flag: text"
	help  bool
}

// translate reads the arguments of another picker, in which flags of serve may
// stand too.
func translate(args []string) (t translation, err error) {
	fl := newServe().Flags()
	fl.Init("epp", pflag.ContinueOnError)
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return pflag.NormalizedName(kebab(name)) })
	fl.BoolVarP(&t.help, "help", "h", false, "")
	own := map[string]bool{}
	fl.VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	for _, f := range foreignFlags {
		switch {
		case own[f.name]: // the same here
		case f.value == boolValue:
			fl.Bool(f.name, false, "")
		case f.name == "v":
			fl.StringP("v", "v", "", "")
		default:
			fl.String(f.name, "", "")
		}
	}
	if err := fl.Parse(doubleDashes(fl, args)); err != nil {
		return t, cli.UsageError{Err: err}
	}
	if fl.NArg() > 0 {
		return t, cli.UsageError{Err: fmt.Errorf("unexpected argument %q", fl.Arg(0))}
	}
	said := map[string]bool{}
	fl.Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains(kubeNames, f.Name) && fl.Changed("endpoints"):
			t.notes = append(t.notes, "--"+f.Name+": --endpoints names the engines")
		case own[f.Name] && f.Name != "help":
			said[f.Name] = true
			t.args = append(t.args, ownArgs(f)...)
		}
	})
	for i := range foreignFlags {
		if f := fl.Lookup(foreignFlags[i].name); f.Changed && !own[f.Name] && err == nil {
			err = t.take(&foreignFlags[i], f.Value.String(), said)
		}
	}
	if !said["metrics-compat"] {
		t.args = append(t.args, "--metrics-compat=true") // dashboards and alerts go on
	}
	return t, err
}

// ownArgs writes a flag of serve as it was given.
func ownArgs(f *pflag.Flag) (args []string) {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		for _, v := range list.GetSlice() {
			args = append(args, "--"+f.Name+"="+v)
		}
		return args
	}
	return []string{"--" + f.Name + "=" + f.Value.String()}
}

// take translates one flag. What said names was given as a flag of serve.
func (t *translation) take(f *foreignFlag, value string, said map[string]bool) error {
	if f.to != nil {
		flags, err := f.to(value)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--%s: %w", f.name, err)}
		}
		for _, s := range flags {
			if !said[s.name] {
				said[s.name] = true
				t.args = append(t.args, "--"+s.name+"="+s.value)
			}
		}
	}
	if f.note != "" && (f.quiet == nil || !f.quiet(value)) {
		t.notes = append(t.notes, "--"+f.name+": "+f.note)
	}
	return nil
}

// doubleDashes writes -name as --name, which programs with Go's own flag
// package take.
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

// print writes the command line, and the notes as comments.
func (t *translation) print(w io.Writer) {
	fmt.Fprint(w, "grapevine serve")
	for _, a := range t.args {
		fmt.Fprintf(w, " \\\n  %s", quoted(a))
	}
	fmt.Fprintln(w)
	for _, n := range t.notes {
		fmt.Fprintln(w, "#", n)
	}
}

// quoted writes an argument for a shell.
func quoted(a string) string {
	if strings.ContainsAny(a, " \t\n'\"$`\\|&;<>(){}*?!#~[]") {
		return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return a
}
