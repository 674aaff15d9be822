package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/grapevine-epp/grapevine/internal/strict"
)

// SettingsFlag is the flag that names a settings file.
const SettingsFlag = "settings"

// EnvironmentPrefix precedes the names of flags in environment variables.
const EnvironmentPrefix = "GRAPEVINE_"

// EnvironmentName returns the environment variable of a flag.
func EnvironmentName(flag string) string {
	return EnvironmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ReadSettings sets the flags that the command line does not set, from environment variables and
// from the settings file. Variables take precedence over the file. Repeatable flags take one value
// for each line of a variable.
func ReadSettings(fl *pflag.FlagSet, environment []string) error {
	values := map[string]string{}
	for _, e := range environment {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, EnvironmentPrefix) {
			values[name] = value
		}
	}
	given := map[string]bool{}
	fl.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var errs []error
	fl.VisitAll(func(f *pflag.Flag) {
		value, has := values[EnvironmentName(f.Name)]
		if !has || given[f.Name] || f.Name == "help" {
			return
		}
		list := []string{value}
		if isList(f) {
			list = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' })
		}
		given[f.Name] = true
		for _, v := range list {
			if err := fl.Set(f.Name, v); err != nil {
				errs = append(errs, UsageError{fmt.Errorf("environment variable %s: %w", EnvironmentName(f.Name), err)})
			}
		}
	})
	if file := fl.Lookup(SettingsFlag); file != nil && file.Value.String() != "" {
		errs = append(errs, readSettingsFile(fl, file.Value.String(), given))
	}
	return errors.Join(errs...)
}

func isList(f *pflag.Flag) bool {
	_, list := f.Value.(pflag.SliceValue)
	return list
}

// readSettingsFile sets the flags of a YAML file that are not given otherwise.
func readSettingsFile(fl *pflag.FlagSet, path string, given map[string]bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", SettingsFlag, err)
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(b)).Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("--%s %s: %w", SettingsFlag, path, err)
	}
	root := doc.Content[0]
	bad := func(n *yaml.Node, format string, a ...any) error {
		return UsageError{fmt.Errorf("%s:%d:%d: %s", path, n.Line, n.Column, fmt.Sprintf(format, a...))}
	}
	if root.Kind != yaml.MappingNode {
		return bad(root, "want flags with their values, such as log-level: debug")
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		f := fl.Lookup(key.Value)
		switch {
		case f == nil || key.Value == SettingsFlag || key.Value == "help":
			errs = append(errs, bad(key, "there is no flag %q%s", key.Value, NearestFlag(fl, key.Value)))
		case seen[key.Value]:
			errs = append(errs, bad(key, "%s is set twice", key.Value))
		case given[key.Value]:
		case value.Kind == yaml.ScalarNode:
			if err := fl.Set(key.Value, value.Value); err != nil {
				errs = append(errs, bad(value, "%v", err))
			}
		case value.Kind == yaml.SequenceNode && isList(f):
			for _, v := range value.Content {
				if err := fl.Set(key.Value, v.Value); err != nil || v.Kind != yaml.ScalarNode {
					errs = append(errs, bad(v, "%s: want a list of values (%v)", key.Value, err))
				}
			}
		default:
			errs = append(errs, bad(value, "%s: want a single value", key.Value))
		}
		seen[key.Value] = true
	}
	return errors.Join(errs...)
}

// MisspelledEnvironment returns a warning for each environment variable that looks like one of a
// flag and is none. Variables that Kubernetes sets for Services are not reported.
func MisspelledEnvironment(fl *pflag.FlagSet, environment []string) (warnings []string) {
	var known []string
	fl.VisitAll(func(f *pflag.Flag) { known = append(known, EnvironmentName(f.Name)) })
	for _, e := range environment {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, EnvironmentPrefix) || strings.Contains(name, "_PORT") || strings.Contains(name, "_SERVICE_") {
			continue
		}
		exact := false
		for _, k := range known {
			exact = exact || k == name
		}
		if near := strict.Nearest(name, known); !exact && near != "" {
			warnings = append(warnings, fmt.Sprintf("environment variable %s is not used; did you mean %s?", name, near))
		}
	}
	return warnings
}
