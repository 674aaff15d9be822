package commands

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// checkFlags are the flags of check.
type checkFlags struct {
	pool    string
	plugins plugin.Table

	endpoints, config string
	output            cli.Output
	effective, live   bool
	admin, engineKey  string
	models            []string
}

func newCheck(p Program) *cobra.Command {
	f := checkFlags{plugins: p.Plugins}
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Check a configuration and an endpoints file",
		Long: `Prints all problems with file:line:column and a hint. The exit code is 1 if there are
any. With --print-effective, the configuration is printed with all defaults filled in.

With --live, the engines of the endpoints file, or of the replica at --admin, are checked:
their identity, whether they render three fixed chats like the model's folder does here (the
first differing byte is shown with both sides), and whether event streams and answers report
two completions that are sent to each engine.`,
		Example: `  grapevine check epp.yaml endpoints.yaml
  grapevine check --config epp.yaml --endpoints endpoints.yaml
  grapevine check --config epp.yaml --print-effective
  grapevine check --endpoints endpoints.yaml -o json
  grapevine check --live --endpoints endpoints.yaml --model qwen3=/models/Qwen3-8B`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.files(args); err != nil {
				return cli.UsageError{Err: err}
			}
			return f.run(cmd)
		},
	}
	cmd.Flags().StringVar(&f.endpoints, "endpoints", "", "endpoints file")
	cmd.Flags().StringVar(&f.config, "config", "", "EndpointPickerConfig file")
	cmd.Flags().BoolVar(&f.effective, "print-effective", false, "print the configuration with defaults filled in")
	cmd.Flags().BoolVar(&f.live, "live", false, "check the engines of the endpoints")
	cmd.Flags().StringVar(&f.pool, "pool", "", "with --live and --admin: pool, of a replica that serves several")
	cmd.Flags().StringVar(&f.admin, "admin", "", "with --live: admin address of a replica whose endpoints are checked")
	cmd.Flags().StringVar(&f.engineKey, "engine-key-file", "", "with --live: file with the engines' API key (--api-key of the engine)")
	cmd.Flags().StringArrayVar(&f.models, "model", nil, "with --live: NAME=FOLDER of a model's tokenizer files, if they are not found automatically (repeatable)")
	cli.AddOutput(cmd, &f.output)
	return cmd
}

// files assigns the files given without a flag by their content: a document with the top-level key
// "endpoints" is an endpoints file, any other document a configuration.
func (f *checkFlags) files(names []string) error {
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var document map[string]any
		_ = yaml.Unmarshal(text, &document) // the reader of the file reports its errors
		into, flag := &f.config, "--config"
		if _, ok := document["endpoints"]; ok {
			into, flag = &f.endpoints, "--endpoints"
		}
		if *into != "" {
			return fmt.Errorf("%s and %s are both for %s: give one", *into, name, flag)
		}
		*into = name
	}
	return nil
}

func (f *checkFlags) run(cmd *cobra.Command) error {
	if f.live {
		return f.look(cmd)
	}
	if f.admin != "" || f.engineKey != "" || len(f.models) > 0 {
		return cli.UsageError{Err: errors.New("--admin, --engine-key-file and --model require --live")}
	}
	if f.endpoints == "" && f.config == "" {
		return cli.UsageError{Err: errors.New("nothing to check: give a configuration or endpoints file")}
	}
	if f.effective && (f.config == "" || f.output != cli.Text) {
		return cli.UsageError{Err: errors.New("--print-effective requires --config and cannot be used with --output")}
	}
	var problems []strict.Problem
	var fine []string
	var c *config.Config
	if f.config != "" {
		var found []strict.Problem
		c, found = config.Load(f.config, config.Options{Table: f.plugins})
		problems = append(problems, found...)
		if c != nil {
			for _, n := range c.Notes {
				fine = append(fine, "note: "+n.String())
			}
			fine = append(fine, c.TrustMode())
			if told := c.Producer.UrgencyText; told != "" {
				fine = append(fine, told)
			}
			fine = append(fine, f.config+": no problems")
		}
	}
	if f.endpoints != "" {
		list, found := discovery.Load(f.endpoints)
		problems = append(problems, found...)
		if len(found) == 0 {
			fine = append(fine, fmt.Sprintf("%s: %d endpoints, no problems", f.endpoints, len(list)))
		}
	}
	if f.effective && len(problems) == 0 {
		return printEffective(cmd, c)
	}
	return report(cmd, f.output, problems, strings.Join(fine, "\n"))
}

func printEffective(cmd *cobra.Command, c *config.Config) error {
	b, err := c.Effective()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(b)
	return err
}

// report prints problems, or fine if there are none.
func report(cmd *cobra.Command, output cli.Output, problems []strict.Problem, fine string) error {
	out := cmd.OutOrStdout()
	if !output.IsText() {
		if problems == nil {
			problems = []strict.Problem{}
		}
		if err := output.WriteLine(out, problems); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		if len(problems) == 0 {
			fmt.Fprintln(out, fine)
		}
	}
	if len(problems) > 0 {
		return cli.ExitCode(1)
	}
	return nil
}
