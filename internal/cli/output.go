package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/strict"
)

// Output is the value of the flag --output.
type Output string

// Output formats.
const (
	Text Output = "text"
	Wide Output = "wide" // text with more columns
	JSON Output = "json"
	YAML Output = "yaml"
)

var outputs = []Output{Text, Wide, JSON, YAML}

// AddOutput adds the flag --output to a command.
func AddOutput(cmd *cobra.Command, o *Output) {
	*o = Text
	cmd.Flags().VarP(o, "output", "o", "output format: text, wide, json or yaml")
}

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *Output) Type() string { return "string" }

// Set implements pflag.Value.
func (o *Output) Set(v string) error {
	if !slices.Contains(outputs, Output(v)) {
		var names []string
		for _, o := range outputs {
			names = append(names, string(o))
		}
		if hint := strict.DidYouMean(v, names); hint != "" {
			return fmt.Errorf("want %s; %s", strings.Join(names, ", "), hint)
		}
		return fmt.Errorf("want %s", strings.Join(names, ", "))
	}
	*o = Output(v)
	return nil
}

// WriteLine is Write with JSON on one line.
func (o Output) WriteLine(w io.Writer, v any) error {
	if o == JSON {
		return json.NewEncoder(w).Encode(v)
	}
	return o.Write(w, v)
}

// IsText reports whether the format is for people.
func (o Output) IsText() bool { return o == Text || o == Wide }

// Write writes v in a format for programs.
func (o Output) Write(w io.Writer, v any) error {
	if o != YAML {
		return WriteJSON(w, v)
	}
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
