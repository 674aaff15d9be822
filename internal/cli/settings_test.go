package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// settingFlags returns flags of each kind.
func settingFlags(t *testing.T, file string, args ...string) *pflag.FlagSet {
	t.Helper()
	fl := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fl.String(SettingsFlag, "", "")
	fl.String("log-level", "info", "")
	fl.Bool("plaintext", false, "")
	fl.Duration("drain", time.Second, "")
	fl.StringSlice("cluster-join", nil, "")
	fl.StringArray("model", nil, "")
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--settings", path)
	}
	if err := fl.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fl
}

// TestReadSettings: the command line takes precedence over the environment, and that over the file.
func TestReadSettings(t *testing.T) {
	const file = "log-level: debug\nplaintext: true\ndrain: 3s\ncluster-join: [a:1, b:2]\nmodel:\n- m=/a\n- n=/b,c\n"
	for _, c := range []struct {
		name, file  string
		args, env   []string
		want, lists string
	}{
		{"nothing", "", nil, nil, "info false 1s", "[] []"},
		{"file", file, nil, nil, "debug true 3s", "[a:1,b:2] [m=/a,n=/b,c]"},
		{"variables", "", nil, []string{"GRAPEVINE_LOG_LEVEL=warn", "GRAPEVINE_PLAINTEXT=true", "GRAPEVINE_CLUSTER_JOIN=c:3,d:4", "GRAPEVINE_MODEL=m=/a\nn=/b,c", "OTHER=1"}, "warn true 1s", "[c:3,d:4] [m=/a,n=/b,c]"},
		{"variables before the file", file, nil, []string{"GRAPEVINE_LOG_LEVEL=warn", "GRAPEVINE_CLUSTER_JOIN=c:3"}, "warn true 3s", "[c:3] [m=/a,n=/b,c]"},
		{"command line before both", file, []string{"--log-level=error", "--cluster-join=e:5", "--plaintext=false"}, []string{"GRAPEVINE_LOG_LEVEL=warn"}, "error false 3s", "[e:5] [m=/a,n=/b,c]"},
		{"empty file", "# nothing\n", nil, nil, "info false 1s", "[] []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fl := settingFlags(t, c.file, c.args...)
			if err := ReadSettings(fl, c.env); err != nil {
				t.Fatal(err)
			}
			value := func(name string) string { return fl.Lookup(name).Value.String() }
			got := value("log-level") + " " + value("plaintext") + " " + value("drain")
			if lists := value("cluster-join") + " " + value("model"); got != c.want || strings.ReplaceAll(lists, `"`, "") != c.lists {
				t.Errorf("%s %s, want %s %s", got, lists, c.want, c.lists)
			}
		})
	}
}

// TestReadSettingsErrors: each error names the file's line or the variable.
func TestReadSettingsErrors(t *testing.T) {
	for file, want := range map[string]string{
		"log-levl: debug\n":       `settings.yaml:1:1: there is no flag "log-levl"; did you mean --log-level?`,
		"a: 1\ndrain: x\n":        `settings.yaml:2:8: invalid argument "x" for "--drain" flag`,
		"log-level: [a]\n":        "settings.yaml:1:12: log-level: want a single value",
		"drain: 1s\ndrain: 2s\n":  "settings.yaml:2:1: drain is set twice",
		"- a\n":                   "settings.yaml:1:1: want flags with their values",
		"settings: other.yaml\n":  `there is no flag "settings"`,
		"cluster-join: {a: 1}\n":  "settings.yaml:1:15: cluster-join: want a single value",
		"log-level: debug\n: :\n": "settings.yaml",
	} {
		if err := ReadSettings(settingFlags(t, file), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
	err := ReadSettings(settingFlags(t, ""), []string{"GRAPEVINE_DRAIN=soon"})
	if err == nil || !strings.Contains(err.Error(), "environment variable GRAPEVINE_DRAIN: ") || codeOf(err) != 2 {
		t.Errorf("%v, want a usage error that names the variable", err)
	}
}

// TestMisspelledEnvironment: a variable that is nearly one of a flag is reported, and those of
// Services are not.
func TestMisspelledEnvironment(t *testing.T) {
	env := []string{"GRAPEVINE_LOG_LEVL=debug", "GRAPEVINE_LOG_LEVEL=debug", "GRAPEVINE_PORT=tcp://10.0.0.1:9002", "GRAPEVINE_SERVICE_HOST=10.0.0.1", "GRAPEVINE_ENTIRELY_DIFFERENT=1", "LOG_LEVL=1"}
	want := []string{"environment variable GRAPEVINE_LOG_LEVL is not used; did you mean GRAPEVINE_LOG_LEVEL?"}
	if diff := cmp.Diff(want, MisspelledEnvironment(settingFlags(t, ""), env)); diff != "" {
		t.Error(diff)
	}
}
