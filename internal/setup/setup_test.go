package setup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs copies of the scripts of this folder with fake commands: python3 and npm that
// fetch nothing and record their calls, and a go that fuzzes nothing.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"setup.sh", "versions.sh", "fuzz.sh"} {
				script, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), script, 0o755); err != nil {
					return err
				}
			}
			commands, err := filepath.Glob(filepath.Join(env.WorkDir, "bin", "*"))
			if err != nil {
				return err
			}
			for _, name := range commands {
				if err := os.Chmod(name, 0o755); err != nil {
					return err
				}
			}
			env.Setenv("PATH", filepath.Join(env.WorkDir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("GRAPEVINE_CACHE", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("CALLS", filepath.Join(env.WorkDir, "calls"))
			env.Setenv("ENVOY", "")
			return nil
		},
	})
}
