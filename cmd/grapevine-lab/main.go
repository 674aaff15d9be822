// Command grapevine-lab is the laboratory of grapevine: simulated engines, demos, benchmarks,
// recordings and the replay of traces. Serving does not need it.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// version is set by the linker (see Makefile).
var version = "dev"

func main() { cli.Main(newRoot()) }

// synonyms are names under which other programs have a subcommand of this program.
var synonyms = map[string][]string{
	"sim":    {"simulate", "simulator", "engine", "engines", "mock", "fake"},
	"bench":  {"benchmark", "perf", "load", "soak"},
	"replay": {"play", "rerun", "trace", "size", "matrix"},
	"record": {"recording", "capture", "dump"},
	"demo":   {"example", "try", "quickstart", "show"},
}

func newRoot() *cobra.Command {
	return cli.Synonyms(cli.WithVersion(cli.Root(&cobra.Command{
		Use:   "grapevine-lab",
		Short: "Simulated engines, demos, benchmarks and replay for grapevine",
		Long: `Tools for testing the endpoint picker grapevine: simulated engines, demos with a real
Envoy, benchmarks, recordings of running replicas and trace replay under other policies.
Subcommands that run replicas start the program grapevine, found next to this one or on PATH.

Exit codes: 0 success, 1 failure, 2 usage error.`,
		Args: cli.SubcommandsOf("grapevine", "serve", "up", "epp", "sidecar", "migrate", "check", "explain", "envoy-config", "status", "top", "doctor",
			"log-level", "flight-record", "flow", "members", "federation", "man"),
	}, newSim(), newDemo(), newReplay(), newRecord(), newBench(), newConformance(), newCorpus(), newGate(), newNoop(), newNATS(), cli.NewVersion("grapevine-lab", version)), version), synonyms)
}

// picker returns the path of the program grapevine: next to this one, or on PATH.
func picker() (string, error) {
	const name = "grapevine"
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the program grapevine is neither next to grapevine-lab nor on PATH: %w", err)
	}
	return path, nil
}
