package testkit

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// Build builds commands of this module, such as grapevine, into a folder of the
// test and returns the folder.
func Build(tb testing.TB, commands ...string) string {
	tb.Helper()
	parts.Full(tb)
	dir := tb.TempDir()
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, name := range commands {
		args = append(args, "github.com/grapevine-epp/grapevine/cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("building %v: %v\n%s", commands, err, out)
	}
	return dir
}
