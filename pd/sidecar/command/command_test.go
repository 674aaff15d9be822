package command

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestListedRoles: an engine of the endpoints file may be called only for the role in its label.
// Engines without a label and engines of --allow may be called for every role.
func TestListedRoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	const text = `endpoints:
- {name: p, address: 10.0.0.1, port: 8000, labels: {llm-d.ai/role: prefill}}
- {name: d, address: 10.0.0.2, port: 8000, labels: {llm-d.ai/role: decode}}
- {name: e, address: 10.0.0.3, port: 8000, labels: {llm-d.ai/role: encode}}
- {name: x, address: "fd00::4", port: 8000}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := flags{endpoints: file, allow: []string{"10.0.0.2:8000", "10.0.0.9:1"}}
	got, err := f.listed()
	want := sidecar.Listed{
		"10.0.0.1:8000": endpoint.RolePrefill, "10.0.0.3:8000": endpoint.RoleEncode, "[fd00::4]:8000": sidecar.AnyRole,
		"10.0.0.2:8000": sidecar.AnyRole, "10.0.0.9:1": sidecar.AnyRole,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	f = flags{endpoints: file}
	if got, err = f.listed(); err != nil || got["10.0.0.2:8000"] != endpoint.RoleDecode {
		t.Errorf("a decode engine is listed for %d, %v", got["10.0.0.2:8000"], err)
	}
}

// TestPortsAreChecked: ports that cannot exist, and negative retries, are refused with the flag's name.
func TestPortsAreChecked(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--model-server-port 0", "--model-server-port 0: want 1 to 65535"},
		{"--model-server-port 70000", "--model-server-port 70000: want 1 to 65535"},
		{"--model-server-port 65535 --data-parallel-size 2", "--model-server-port 65535: want 1 to 65534"},
		{"--p2p-connector-port 0", "--p2p-connector-port 0: want 1 to 65535"},
		{"--port -1", "--port -1: want 0 to 65535"},
		{"--moriio-decode-notify-port 99999", "--moriio-decode-notify-port 99999: want 1 to 65535"},
		{"--prefill-max-retries -1", "--prefill-max-retries -1: must not be negative"},
	} {
		cmd := New()
		cmd.SetArgs(strings.Fields(c.args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
}

// lines sends the written lines.
type lines chan string

// Write implements io.Writer.
func (l lines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }

// TestFilesAreFollowed: the allowed targets change with the endpoints file; an unreadable file
// changes nothing.
func TestFilesAreFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("endpoints: [{name: a, address: 10.0.0.1, port: 8000}]\n")
	said := make(chan string, 100)
	f := flags{endpoints: file, log: slog.New(slog.NewTextHandler(lines(said), nil))}
	first, err := f.targets()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	targets := f.follow(ctx, first, &wg)
	allowed := func(address string) bool {
		p, _ := targets.Allowed(nil, []string{address}, nil)
		return len(p) == 1
	}
	if !allowed("10.0.0.1:8000") || allowed("10.0.0.2:8000") {
		t.Error("not the targets of the file")
	}
	write("endpoints: [{name: b, address: 10.0.0.2, port: 8000}]\n")
	testkit.Await(t, "the new list counts", func() bool { return allowed("10.0.0.2:8000") && !allowed("10.0.0.1:8000") })
	write("endpoints: [{name: ")
	testkit.Await(t, "a broken file is named", func() bool { return strings.Contains(<-said, "list of allowed engines unchanged") })
	if !allowed("10.0.0.2:8000") {
		t.Error("a broken file took the targets away")
	}
}
