//go:build proxies

package proxies

import (
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// TestMain: the examples have fixed ports and paths, which are free in namespaces.
func TestMain(m *testing.M) { os.Exit(podkit.Main(m)) }
