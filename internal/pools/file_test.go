package pools

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

const sample = `pools:
- name: llama
  port: 9002
  endpoints: llama.yaml
  config: epp.yaml
  maxBody: 1000000
  models: [{name: llama, path: models/llama, aliases: [chat], adapters: [sql]}]
- {name: qwen, port: 9003}
`

func TestParse(t *testing.T) {
	t.Parallel()
	list, err := Parse("pools.yaml", []byte(sample))
	if err != nil || len(list) != 2 {
		t.Fatalf("Parse() = %v, %v", list, err)
	}
	list[0].resolve("/etc/grapevine")
	if e := list[0]; e.Problem != "" || e.Endpoints != "/etc/grapevine/llama.yaml" || e.Config != "/etc/grapevine/epp.yaml" || e.Models[0].Path != "/etc/grapevine/models/llama" || e.Models[0].Aliases[0] != "chat" || e.Models[0].Adapters[0] != "sql" || e.MaxBody != 1000000 {
		t.Errorf("first pool: %+v", e)
	}
	if e := list[1]; e.Problem != "" || e.Name != "qwen" || e.Port != 9003 {
		t.Errorf("second pool: %+v", e)
	}
}

// TestProblems: a problem of an entry names its position and stays with this entry.
func TestProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: b, prot: 1}":                      `unknown field "prot"`,
		"{port: 1}":                               "name is missing",
		"{name: Upper}":                           `"Upper" is not the name of a pool`,
		"{name: ../x}":                            "is not the name of a pool",
		"{name: b, port: 70000}":                  "70000",
		"{name: a}":                               "pool a is listed twice",
		"{name: b, port: 9002}":                   "port 9002 is the port of pool a",
		"{name: b, models: [{name: m}]}":          "path is missing",
		"{name: b, models: [{name: m, path: 1}]}": "path must be text",
		"[]": "must be an object",
	} {
		list, err := Parse("pools.yaml", []byte("pools:\n- {name: a, port: 9002}\n- "+text+"\n- {name: c}\n"))
		if err != nil || len(list) != 3 {
			t.Fatalf("%s: Parse() = %v, %v", text, list, err)
		}
		if !strings.Contains(list[1].Problem, want) {
			t.Errorf("%s: problem %q, want %q", text, list[1].Problem, want)
		}
		if list[0].Problem != "" || list[2].Problem != "" {
			t.Errorf("%s: problems of the other pools: %q, %q", text, list[0].Problem, list[2].Problem)
		}
	}
	for _, text := range []string{"", "pools: {}\n", "pool: []\n", "pools: []\nmore: 1\n", "pools: ["} {
		if list, err := Parse("pools.yaml", []byte(text)); err == nil {
			t.Errorf("%q: Parse() = %v, want an error", text, list)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("pools:\n- {name: a, port: 1}\n- {name: a}\n- {name: b, port: 1}\n- {}\n"))
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, b []byte) {
		list, err := Parse("pools.yaml", b)
		if err != nil {
			return
		}
		var names []string
		var ports []int
		for i := range list {
			e := &list[i]
			if slices.Contains(names, e.Name) {
				t.Errorf("name %q is there twice", e.Name)
			}
			names = append(names, e.Name)
			if e.Problem != "" {
				continue
			}
			if !admin.ValidPool(e.Name) || e.Port < 0 || e.Port > math.MaxUint16 || e.Port > 0 && slices.Contains(ports, e.Port) {
				t.Errorf("entry %+v has no problem", e)
			}
			ports = append(ports, e.Port)
		}
	})
}
