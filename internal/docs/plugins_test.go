package docs

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

var rewrite = flag.Bool("rewrite", false, "write the index and the defaults of docs/plugins anew")

const (
	root  = "../.."
	pages = root + "/docs/plugins/"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// loads fails the test unless text is a configuration without problems.
func loads(t *testing.T, at, text string) *config.Config {
	t.Helper()
	c, problems := config.Parse(at, []byte(withModules(t, text)), config.Options{Table: pd.Table()})
	for _, p := range problems {
		t.Errorf("%s: the example does not load: %s\n%s", at, p, text)
	}
	return c
}

// withModules replaces the WebAssembly modules that an example names by modules that read a header and
// a label.
func withModules(t *testing.T, text string) string {
	t.Helper()
	if !strings.Contains(text, moduleFolder) {
		return text
	}
	dir := t.TempDir()
	facts := []string{`endpoint.labels["tier"]`}
	write(t, dir+"/scorer.wasm", string(wasmkit.Module(wasmkit.Options{Facts: facts, Body: wasmkit.Nothing})))
	facts = append(facts, `request.headers["x-tier"]`)
	write(t, dir+"/filter.wasm", string(wasmkit.Module(wasmkit.Options{Filter: true, Facts: facts, Body: wasmkit.Nothing})))
	return strings.ReplaceAll(text, moduleFolder, dir+"/")
}

// moduleFolder is the folder of modules in examples.
const moduleFolder = "/etc/grapevine/"

func TestPluginPages(t *testing.T) {
	known := metricNames(t)
	for _, typ := range pd.Table() {
		t.Run(typ.Name, func(t *testing.T) {
			path := pages + typ.Name + ".md"
			page := read(t, path)
			list, anything := parameters(typ)
			if *rewrite {
				if page = withDefaults(page, list); page != read(t, path) {
					write(t, path, page)
				}
			}
			head := "# " + typ.Name + "\n\n" + typ.Summary + "\n\n- Kind: " + string(typ.Kind) + "\n"
			if !strings.HasPrefix(page, head) {
				t.Errorf("the page does not begin with\n%s", head)
			}
			for _, alias := range typ.Aliases {
				if !strings.Contains(page, "`"+alias+"`") {
					t.Errorf("the page does not name the spelling %s", alias)
				}
			}
			if !strings.Contains(page, strings.TrimSuffix(typ.Note, ".")) {
				t.Errorf("the page does not say: %s", typ.Note)
			}
			for _, name := range []string{"Description", "Parameters", "Metrics", "Example"} {
				if body, ok := section(page, name); !ok || strings.TrimSpace(body) == "" {
					t.Errorf("no section %q", name)
				}
			}
			table, _ := section(page, "Parameters")
			checkParameters(t, table, list, anything)
			checkExamples(t, typ, page)
			for _, name := range regexp.MustCompile(`grapevine_[a-z_]+`).FindAllString(page, -1) {
				if !known[name] {
					t.Errorf("there is no metric %s", name)
				}
			}
		})
	}
}

func checkParameters(t *testing.T, table string, list []parameter, anything bool) {
	t.Helper()
	got := rows(table)
	switch {
	case anything && !strings.Contains(table, "Any parameters"):
		t.Error("the type accepts any parameters, and the page does not say so")
	case !anything && len(list) == 0 && strings.TrimSpace(table) != "None.":
		t.Error("the type has no parameters: the section must be \"None.\"")
	}
	for _, p := range list {
		cells, ok := got[p.path]
		if !ok {
			t.Errorf("parameter %s is not in the table", p.path)
			continue
		}
		if cells[1] != p.fallback || cells[2] == "" {
			t.Errorf("parameter %s: default %s, meaning %q; want default %s (-rewrite) and a meaning", p.path, cells[1], cells[2], p.fallback)
		}
		delete(got, p.path)
	}
	for name := range got {
		t.Errorf("there is no parameter %s", name)
	}
}

func checkExamples(t *testing.T, typ plugin.Type, page string) {
	t.Helper()
	list := fences(page, "yaml")
	if len(list) == 0 {
		t.Error("no example")
	}
	for _, text := range list {
		loads(t, typ.Name+".md", text)
	}
	if !strings.Contains(strings.Join(list, ""), typ.Name) {
		t.Errorf("no example uses %s", typ.Name)
	}
}

// metricNames are the names that the sources register, and the names that the picker composes.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	literal := regexp.MustCompile(`"(grapevine_[a-z_]+)"`)
	ofGroup := regexp.MustCompile(`\bdesc[A-Z][A-Za-z]+ += desc\("([a-z_]+)"`) // package cluster puts its prefix before each
	ofKube := regexp.MustCompile(`\bgauge\("([a-z_]+)", "`)                    // so does the source of endpoints in Kubernetes
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range literal.FindAllSubmatch(b, -1) {
			known[string(m[1])] = true
		}
		for _, m := range ofGroup.FindAllSubmatch(b, -1) {
			known["grapevine_cluster_"+string(m[1])] = true
		}
		for _, m := range ofKube.FindAllSubmatch(b, -1) {
			known["grapevine_discovery_"+string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	if _, err := picker.New(picker.Options{Pool: endpoint.NewPool(endpoint.PoolOptions{}), Rules: config.Default(config.Options{Table: pd.Table()}).Rules, Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		known[f.GetName()] = true
	}
	return known
}

func TestPluginIndex(t *testing.T) {
	want := index(pd.Table())
	if *rewrite {
		write(t, pages+"README.md", want)
	}
	if diff := cmp.Diff(want, read(t, pages+"README.md")); diff != "" {
		t.Errorf("docs/plugins/README.md is not that of the table (-rewrite):\n%s", diff)
	}
	files, err := os.ReadDir(pages)
	if err != nil {
		t.Fatal(err)
	}
	names := append(pd.Table().Names(), "README")
	for _, f := range files {
		if !slices.Contains(names, strings.TrimSuffix(f.Name(), ".md")) {
			t.Errorf("docs/plugins/%s is about no plugin type", f.Name())
		}
	}
}

// TestParameterPaths: nested, embedded and listed fields have paths.
func TestParameterPaths(t *testing.T) {
	f := func(typ, path, fallback string) {
		t.Helper()
		row, _ := pd.Table().Find(typ)
		list, _ := parameters(row)
		if !slices.Contains(list, parameter{path, fallback}) {
			t.Errorf("%s has no %s with default %s: %v", typ, path, fallback, list)
		}
	}
	f("max-score-picker", "maxNumOfEndpoints", "`3`")
	f("precise-prefix-cache-scorer", "tokenProcessorConfig.blockSize", noDefault)
	f("utilization-filter", "conditions[].metric", noDefault)
	f("prefix-cache-scorer", "blockSizeTokens", noDefault)
	f("file-discovery", "watchFile", "`true`")
}
