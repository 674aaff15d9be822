package discovery

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestParse runs the files in testdata/parse, each with an endpoints file and the result. Use
// -rewrite to update the results.
func TestParse(t *testing.T) {
	datadriven.Walk(t, "testdata/parse", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "parse" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			list, problems := Parse("f", []byte(d.Input))
			var b strings.Builder
			for _, p := range problems {
				fmt.Fprintln(&b, p)
			}
			if len(problems) > 0 {
				fmt.Fprintf(&b, "%d problems, %d endpoints without\n", len(problems), len(list))
				return b.String()
			}
			for _, e := range list {
				describe(&b, e)
			}
			return b.String()
		})
	})
}

func describe(b *strings.Builder, e Endpoint) {
	fmt.Fprintf(b, "%d: %s/%s %s engine=%s", e.Line, e.Namespace, e.Name, e.HostPort(), e.Engine)
	keys := make([]string, 0, len(e.Labels))
	for k, v := range e.Labels {
		keys = append(keys, k+"="+v)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(b, " %s", k)
	}
	if len(e.Models) > 0 {
		fmt.Fprintf(b, " models=%v", e.Models)
	}
	if e.Events != (endpoint.Events{}) {
		fmt.Fprintf(b, " events=%+v", e.Events)
	}
	if e.Metrics != "" {
		fmt.Fprintf(b, " metrics=%s", e.Metrics)
	}
	b.WriteByte('\n')
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.yaml")
	list, problems := Load(path)
	want := []Problem{{File: path, Message: "no such file or directory"}}
	if diff := cmp.Diff(want, problems); diff != "" || list != nil {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestSpec(t *testing.T) {
	e := Endpoint{
		Name: "a", Namespace: "n", Host: "engines.internal", Port: 8000, Labels: map[string]string{"k": "v"},
		Models: []string{"m"}, Events: endpoint.Events{Port: 5557, Ranks: 1}, Metrics: "http://h/metrics",
	}
	got := e.Spec(netip.MustParseAddr("::ffff:10.0.0.1"))
	want := endpoint.Spec{
		Name: "a", Namespace: "n", Host: "engines.internal", Addr: netip.MustParseAddrPort("10.0.0.1:8000"),
		Labels: map[string]string{"k": "v"}, Models: []string{"m"}, Events: e.Events, Metrics: "http://h/metrics",
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	got.Labels["k"], got.Models[0] = "other", "other"
	if e.Labels["k"] != "v" || e.Models[0] != "m" {
		t.Error("spec shares memory with its entry")
	}
}

// FuzzParse: for any input there is no panic, entries are complete, and positions are within the
// file.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/parse/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds: ", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(data), "\n\n") {
			input, _, _ := strings.Cut(strings.TrimPrefix(part, "parse\n"), "----")
			f.Add([]byte(input))
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("a: &a {<<: *a}\nendpoints: [*a]"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		list, problems := Parse("f", data)
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2
		for _, p := range problems {
			if p.Message == "" || p.Line < 0 || p.Line > lines+strings.Count(string(data), "\u0085")+strings.Count(string(data), "\u2028")+strings.Count(string(data), "\u2029") {
				t.Errorf("problem outside of the %d lines: %+v", lines, p)
			}
		}
		if list == nil && len(problems) == 0 && !strings.Contains(string(data), "endpoints") {
			t.Error("neither endpoints nor problems")
		}
		for _, e := range list {
			if e.Name == "" || e.Host == "" || e.Port == 0 || (e.Events.Port > 0) != (e.Events.Ranks > 0) {
				t.Errorf("incomplete entry: %+v", e)
			}
		}
	})
}

// TestEveryEngineType: the field engine accepts the label of every engine type.
func TestEveryEngineType(t *testing.T) {
	for i, label := range endpoint.EngineLabels() {
		path := filepath.Join(t.TempDir(), "endpoints.yaml")
		text := fmt.Sprintf("endpoints:\n- {name: a, namespace: n, address: 10.0.0.1, port: 8000, engine: %s}\n", label)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, problems := Load(path)
		if len(problems) > 0 || len(list) != 1 || list[0].Engine != endpoint.EngineType(i+1) {
			t.Errorf("engine: %s gives %v, problems %v", label, list, problems)
		}
	}
}
