package pools

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/cluster/poolbus"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/strict"
)

// MaxPools is the maximum number of pools of one process.
const MaxPools = poolbus.MaxPools

// Entry is one pool with the settings that differ from those of the process.
type Entry struct {
	Name      string
	Port      int    // of its ext_proc listener; 0: the pool's own statement in Kubernetes
	Endpoints string // endpoints file; "": the InferencePool of that name
	Config    string // EndpointPickerConfig; "": as for the process
	MaxBody   int    // bytes; 0: as for the process
	Models    []server.ModelOptions

	// Problem is why this entry cannot be used, "" if it can.
	Problem string
}

func (e *Entry) equal(o *Entry) bool {
	return e.Name == o.Name && e.Port == o.Port && e.Endpoints == o.Endpoints && e.Config == o.Config && e.MaxBody == o.MaxBody && e.Problem == o.Problem &&
		slices.EqualFunc(e.Models, o.Models, func(a, b prefix.ModelOptions) bool {
			return a.Name == b.Name && a.Path == b.Path && slices.Equal(a.Aliases, b.Aliases) && slices.Equal(a.Adapters, b.Adapters)
		})
}

// ReadFile reads a pools file. Paths in it are relative to its folder. An entry with errors has a
// Problem, which affects no other entry. The error is about the file as a whole.
func ReadFile(path string) ([]Entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("pools file: %w", err)
	}
	list, err := Parse(path, b)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].resolve(filepath.Dir(path))
	}
	return list, nil
}

// resolve makes the entry's paths relative to a folder.
func (e *Entry) resolve(dir string) {
	paths := []*string{&e.Endpoints, &e.Config}
	for i := range e.Models {
		paths = append(paths, &e.Models[i].Path)
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// Parse reads the text of a pools file; name is the file's name in errors.
func Parse(name string, b []byte) ([]Entry, error) {
	root, report := strict.Parse(name, b)
	doc := root.Object()
	nodes, _ := doc.Need("pools").List()
	doc.Done()
	if err := report.Problems().Err(); err != nil {
		return nil, err
	}
	if len(nodes) > MaxPools {
		return nil, fmt.Errorf("%s: %d pools, more than %d", name, len(nodes), MaxPools)
	}
	var out []Entry
	for _, n := range nodes {
		own := &strict.Report{File: name}
		e := entryOf(n.Into(own))
		if err := own.Problems().Err(); err != nil {
			e.Problem = err.Error()
		}
		if e.Name == "" {
			e.Name = fmt.Sprintf("line-%d", n.Line()) // so that it can be shown
		}
		out = append(out, e)
	}
	return distinct(out), nil
}

// entryOf reads one pool.
func entryOf(n strict.Node) (e Entry) {
	o := n.Object()
	at := o.Need("name")
	if name, ok := at.Text(); ok {
		if !admin.ValidPool(name) {
			at.Problem("", "%s: %q is not the name of a pool: use lower case letters, digits, dashes and dots", at.Path(), name)
		} else {
			e.Name = name
		}
	}
	if v, ok := o.Field("port").Int(1, math.MaxUint16); ok {
		e.Port = int(v)
	}
	e.Endpoints, _ = o.Field("endpoints").Text()
	e.Config, _ = o.Field("config").Text()
	if v, ok := o.Field("maxBody").Int(1, math.MaxInt32); ok {
		e.MaxBody = int(v)
	}
	models, _ := o.Field("models").List()
	for _, n := range models {
		m, mo := server.ModelOptions{}, n.Object()
		m.Name, _ = mo.Need("name").Text()
		m.Path, _ = mo.Need("path").Text()
		m.Aliases = texts(mo.Field("aliases"))
		m.Adapters = texts(mo.Field("adapters"))
		mo.Done()
		e.Models = append(e.Models, m)
	}
	o.Done()
	return e
}

// texts returns the texts of a list.
func texts(n strict.Node) (out []string) {
	list, _ := n.List()
	for _, t := range list {
		if s, ok := t.Text(); ok {
			out = append(out, s)
		}
	}
	return out
}

// distinct gives entries a Problem that repeat a name or a port of an earlier one. A repeated name
// is changed, so that all names are distinct.
func distinct(list []Entry) []Entry {
	names, ports := map[string]bool{}, map[int]string{}
	for i := range list {
		e := &list[i]
		if names[e.Name] {
			e.add(fmt.Sprintf("pool %s is listed twice", e.Name))
			e.Name = fmt.Sprintf("%s-again-%d", e.Name, i)
		}
		names[e.Name] = true
		if by, taken := ports[e.Port]; taken && e.Port != 0 {
			e.add(fmt.Sprintf("port %d is the port of pool %s", e.Port, by))
		} else if e.Problem == "" {
			ports[e.Port] = e.Name
		}
	}
	return list
}

func (e *Entry) add(problem string) {
	e.Problem = strings.TrimPrefix(e.Problem+"; "+problem, "; ")
}
